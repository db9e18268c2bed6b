"""The machine as a run's header tells it."""

from dataclasses import replace

import torch

from engine.core import machine
from engine.kernels.cpu.calls import kernels_in_words
from engine.models.loading import LoadedModel
from engine.trace.records import Machine


def machine_of(model: LoadedModel, threads: int, why: str) -> Machine:
    """Where a model's steps run, with so many of torch's threads on a CPU, and why so many."""
    on_gpu = model.device.type == "cuda"
    gpu = torch.cuda.get_device_properties(model.device) if on_gpu else None
    told = machine.describe(threads, gpu.name if gpu else "", gpu.total_memory if gpu else 0)
    return replace(told, threads_why=why, kernels="" if on_gpu else kernels_in_words(model.dtype))
