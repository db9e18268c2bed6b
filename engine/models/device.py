"""Which device a model is loaded on, decided before any weight is read."""

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from engine.config.specs import InvalidInput
from engine.kernels.needs import Toolchain, too_old, why_not
from engine.kernels.store_kv import store_kv
from engine.memory.allocator import ran_out
from engine.models.config import first_line
from engine.trace.amounts import bytes_text

CPU = torch.device("cpu")


class Card(NamedTuple):
    """A GPU as CUDA numbers it."""

    name: str
    capability: tuple[int, int]


def device_for(asked: str) -> tuple[torch.device, str]:
    """See `choose`, of this machine."""
    found = []
    if asked != "cpu" and torch.cuda.is_available():
        with contextlib.suppress(RuntimeError):  # where CUDA cannot start there are none
            torch.cuda.init()  # until then NVML counts them, and knows neither slices by MIG nor what CUDA cannot use
            found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return choose(asked, [Card(each.name, (each.major, each.minor)) for each in found], trial)


def choose(asked: str, cards: Sequence[Card], tried: Callable[[torch.device], str]) -> tuple[torch.device, str]:
    """The device for "auto", "cpu", "cuda" or "cuda:N", and why it is not the GPU that "auto" would have taken.
    `tried` launches on a device and says what failed. Raises InvalidInput for a GPU that was named and cannot be used.
    """
    if asked == "cpu" or (asked == "auto" and not cards):
        return CPU, ""
    if not cards:
        raise InvalidInput(f"device={asked!r}: no CUDA GPU is usable here; use cpu, or ask `batchscope doctor` why")
    index = int(asked.partition(":")[2] or 0)
    if index >= len(cards):
        raise InvalidInput(f"device={asked!r}: this machine has {len(cards)} GPU(s)")
    if asked == "auto":  # the first that is new enough
        index = next((i for i, card in enumerate(cards) if not too_old(*card)), 0)
    device = torch.device("cuda", index)
    why = too_old(*cards[index]) or tried(device)
    if not why:
        return device, ""
    if asked == "auto":
        return CPU, f"the model runs on the CPU: {why}"
    raise InvalidInput(f"device={asked!r}: {why}; or use cpu")


def device_of_each(first: torch.device, ranks: int, words: str, cards: int) -> tuple[torch.device, ...]:
    """Where the ranks of a model are that was asked for in these `words`, of which the first is on `first`: on a CPU
    all are; of so many `cards` that CUDA shows to this process each takes one of its own, `first` and those after it,
    from the last on to the first again. Raises InvalidInput where there are fewer."""
    if first.type == "cpu":
        return (first,) * ranks
    if ranks > cards:
        fewer = "1" if cards == 1 else f"at most {cards}"
        raise InvalidInput(
            f"{words}: each rank takes a GPU of its own, and this machine has {cards}; use {fewer}, or device cpu"
        )
    return tuple(torch.device("cuda", ((first.index or 0) + rank) % cards) for rank in range(ranks))


def trial(device: torch.device) -> str:
    """Launches a small kernel and reads what it wrote: "" where that works, else why it does not. The first launch on a
    machine builds Triton's launcher with a C compiler, which a load would else find missing halfway."""
    try:
        k, slots = torch.ones(1, 1, 32, device=device), torch.zeros(1, dtype=torch.int64, device=device)
        cache = torch.zeros(1, 1, 1, 32, device=device)
        bool((cache == 0).all())  # is waited for: what fails so far is not Triton's
    except Exception as error:
        return full(device, error) if ran_out(error) else f"torch cannot use the GPU: {first_line(error)}"
    try:
        store_kv(k, k, cache, cache, slots)
        if not bool((cache == 1).all()):
            raise RuntimeError("a kernel ran and wrote nothing")
    except Exception as error:  # Triton's, the compiler's, the linker's, the driver's
        return full(device, error) if ran_out(error) else why_not(error, Toolchain.here().lacks())
    return ""


def full(device: torch.device, error: Exception) -> str:
    """What is said of a GPU whose memory does not suffice for a single kernel."""
    said = first_line(error)
    with contextlib.suppress(Exception):  # a GPU that is full may have no room to be asked either
        free, total = torch.cuda.mem_get_info(device)
        said = f"{bytes_text(free)} of {bytes_text(total)} are free"
    return f"the GPU's memory is full ({said}): end what else uses it"


def answers(device: torch.device | None) -> bool:
    """Whether a GPU can still be used by this process, by a call that cannot fail otherwise; None: the present one."""
    try:
        torch.cuda.synchronize(device)
    except Exception:  # of which kind depends on the call that failed first
        return False
    return True
