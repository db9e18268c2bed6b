"""NVML's view of a device of torch's."""

import contextlib

import torch

from engine.core.machine import nvml


def card_of(device: torch.device) -> nvml.Card | None:
    """None of a CPU, and where NVML does not know the GPU."""
    if device.type != "cuda":
        return None
    with contextlib.suppress(Exception):  # NVML's own, where library or driver are missing
        return nvml.card_of(str(torch.cuda.get_device_properties(device).uuid))
    return None
