"""What went wrong in a step: too little memory, a device that is lost, or anything else."""

import re
from enum import Enum, auto

import torch

from engine.config.specs import InvalidInput
from engine.memory.allocator import ran_out
from engine.models.device import answers
from engine.parallel.ranks import RankLost

_DEVICE = re.compile(r"\bCUDA\b|\bCUBLAS_|\bcuDNN\b|\bCUDNN_|device-side assert")
_ASKED = re.compile(r"tried to allocate ([\d.]+) (bytes|[KMGT]iB)", re.I)
_FREE = re.compile(r"of which ([\d.]+ [KMGT]?i?B\w*) is free")


class Fault(Enum):
    """MEMORY: nothing was computed, a smaller step may be. DEVICE: the process can never use the device again. STEP:
    the step alone."""

    MEMORY = auto()
    DEVICE = auto()
    STEP = auto()


class DeviceLost(RuntimeError):
    """The device reported an error that stays with the process: another process can use it, this one cannot."""


def fault_of(error: BaseException, device: torch.device | None = None) -> Fault:
    """Tells what an error of a step is, or of a load, whose device is this thread's present GPU where none is given.

    Most errors of CUDA are sticky: every later call in the process fails with the same. So a call that cannot fail
    otherwise tells whether the device still answers, after any error on a GPU and after any that speaks of CUDA.
    """
    if isinstance(error, (RankLost, DeviceLost)):
        return Fault.DEVICE
    if isinstance(error, InvalidInput):  # a person can mend it, whatever it speaks of
        return Fault.STEP
    told = isinstance(error, torch.AcceleratorError) or _DEVICE.search(str(error)) is not None
    if ((device is not None and device.type == "cuda") or told) and not answers(device):
        return Fault.DEVICE
    return Fault.MEMORY if ran_out(error) else Fault.STEP


def first_line(error: BaseException) -> str:
    """An error in one line: what follows are hints for who debugs CUDA."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def device_lost(error: BaseException) -> DeviceLost:
    """What a `Fault.DEVICE` is told as."""
    if isinstance(error, (RankLost, DeviceLost)):
        return DeviceLost(str(error))
    return DeviceLost(f"the GPU reported an unrecoverable error ({first_line(error)})")


def memory_asked(error: BaseException) -> str:
    """What an allocator that ran out of memory says of it, in short."""
    text = str(error)
    asked, free = _ASKED.search(text), _FREE.search(text)
    if asked is None:
        return first_line(error)
    amount = _size(int(float(asked[1]))) if asked[2].lower() == "bytes" else f"{asked[1]} {asked[2]}"
    return f"{amount} more was asked for" + (f", {free[1]} was free" if free else "")


def _size(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
