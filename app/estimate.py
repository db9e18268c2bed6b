"""What a model would take of a memory, told from its files before it is loaded. No torch, no Qt; may block on disk."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from app.words import bytes_words, count_words
from engine import ModelSpec, inspect_model


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes of the weights beside the memory's free and total bytes; `facts` in words, a line each."""

    weights: int
    free: int
    total: int
    facts: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return self.weights < self.free


def nvidia_driver() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()


def on_gpu(device: str) -> bool:
    """Whether a model on this device lies in a GPU's memory."""
    return device.startswith("cuda") or (device == "auto" and nvidia_driver())


def free_memory(gpu: bool) -> tuple[int, int]:
    """Free and total bytes, of the first GPU or of the machine."""
    if gpu:
        with contextlib.suppress(Exception):  # no driver, card or library: the machine's memory then
            import pynvml

            pynvml.nvmlInit()
            try:
                held = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
                return int(held.free), int(held.total)
            finally:
                pynvml.nvmlShutdown()
    import psutil

    memory = psutil.virtual_memory()
    return memory.available, memory.total


def empty(device: str) -> Estimate:
    """The memory without a model."""
    return Estimate(0, *free_memory(on_gpu(device)), ())


def estimate(spec: ModelSpec) -> Estimate:
    """Reads the headers of a local model. Raises InvalidInput when it is none."""
    info = inspect_model(spec)
    gpu = on_gpu(spec.device)
    dtype = (info.dtype if gpu else "float32") if spec.dtype == "auto" else spec.dtype
    facts = (
        f"{count_words(info.parameters)} parameters in {dtype}",
        f"KV {bytes_words(info.kv_token_bytes(dtype))} a token",
    )
    return Estimate(info.bytes_as(dtype), *free_memory(gpu), facts)
