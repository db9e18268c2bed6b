"""What NVML tells of GPUs. Cards differ in what they answer: a laptop's tells no power, a part of a card no load."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.kernels.needs import too_old

# As NVML's levels of topology are numbered: what two cards have in common.
APART = (
    (10, "one switch"),
    (20, "several switches"),
    (30, "one host bridge"),
    (40, "one processor"),
    (50, "two processors"),
)


class Card:
    """A GPU. What it does not answer is left out, and keeps nothing else from being told."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def _ask(self, question: str, *given: Any, otherwise: Any = None) -> Any:
        with contextlib.suppress(self._nvml.NVMLError):
            return getattr(self._nvml, question)(self._handle, *given)
        return otherwise

    def load(self) -> dict[str, float]:
        """The GPU's part of a Telemetry record, as far as it is known."""
        found: dict[str, float] = {}
        if (memory := self._ask("nvmlDeviceGetMemoryInfo")) is not None:
            found |= {"gpu_memory": int(memory.used), "gpu_memory_total": int(memory.total)}
        if (rates := self._ask("nvmlDeviceGetUtilizationRates")) is not None:
            found["gpu_percent"] = float(rates.gpu)
        if (milliwatts := self._ask("nvmlDeviceGetPowerUsage")) is not None:
            found["gpu_watts"] = milliwatts / 1000
        if (celsius := self._ask("nvmlDeviceGetTemperature", 0)) is not None:
            found["gpu_celsius"] = float(celsius)
        return found

    def memory(self) -> tuple[int, int] | None:
        """Free bytes and all."""
        held = self._ask("nvmlDeviceGetMemoryInfo")
        return None if held is None else (int(held.free), int(held.total))

    def held_by(self, process: int) -> int:
        """Bytes that a process holds, the driver's part included; 0 where that is not told."""
        running = self._ask("nvmlDeviceGetComputeRunningProcesses", otherwise=())
        return sum(int(each.usedGpuMemory or 0) for each in running if each.pid == process)

    def drives_display(self) -> bool:
        """Whether a desktop draws with it, and takes memory as it goes: in WSL, where NVML does not say, Windows."""
        return bool(self._ask("nvmlDeviceGetDisplayActive", otherwise=WSL.exists()))

    def linked_by(self, other: Card) -> str:
        """What it exchanges with another through, in words: NVLink, or how far apart they are on PCIe; "" where that is
        not told."""
        nvml = self._nvml
        if (
            self._ask("nvmlDeviceGetP2PStatus", other._handle, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
            == nvml.NVML_P2P_STATUS_OK
        ):
            return "NVLink"
        apart = self._ask("nvmlDeviceGetTopologyCommonAncestor", other._handle)
        return "" if apart is None else next((f"PCIe, {words}" for most, words in APART if apart <= most), "PCIe")

    def in_parts(self) -> bool:
        """Whether MIG is on: the memory is its parts'."""
        return bool(self._ask("nvmlDeviceGetMigMode", otherwise=(0, 0))[0])

    def first_part(self) -> Card | None:
        places = range(self._ask("nvmlDeviceGetMaxMigDeviceCount", otherwise=0))
        parts = (self._ask("nvmlDeviceGetMigDeviceHandleByIndex", place) for place in places)
        return next((Card(self._nvml, part) for part in parts if part is not None), None)

    def too_old(self) -> bool:
        capability = self._ask("nvmlDeviceGetCudaComputeCapability")
        return capability is not None and bool(too_old("", tuple(capability)))


WSL = Path("/dev/dxg")  # the one device there, of any maker


def nvidia_driver(root: Path = Path("/"), answers: Callable[[], bool] = lambda: bool(cards())) -> bool:
    """Whether a GPU could be used; in WSL NVML is asked, elsewhere no library of it is loaded."""
    told = any((root / path).exists() for path in ("proc/driver/nvidia/version", "dev/nvidiactl"))
    return told or ((root / WSL.relative_to("/")).exists() and answers())


def cards() -> list[Card]:
    """The GPUs that CUDA shows to this process; none where NVML does not answer."""
    with contextlib.suppress(Exception):  # errors of its own where library, driver or card are missing
        nvml = _library()
        uuids = [_uuid(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        shown = visible(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
        return [card for uuid in shown if (card := _card_or_part(nvml, uuid)) is not None]
    return []


def _uuid(nvml: Any, index: int) -> str:
    """A GPU's UUID; "" of one that does not tell it, which keeps its number."""
    with contextlib.suppress(nvml.NVMLError):
        return str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index)))
    return ""


def _card_or_part(nvml: Any, uuid: str) -> Card | None:
    """The GPU, or its first part where MIG is on: CUDA shows that one alone to a process. None without any, and of a
    GPU that does not answer."""
    with contextlib.suppress(nvml.NVMLError):
        card = card_of(uuid, nvml)
        return card.first_part() if card.in_parts() and not uuid.startswith("MIG-") else card
    return None


def card_of(uuid: str, nvml: Any = None) -> Card:
    """The card of a UUID as NVML writes it, or as torch does, without the word before it. Its number would not do:
    NVML counts by slot, and CUDA what it shows, the fastest first. Raises NVML's own errors."""
    nvml = nvml or _library()
    if uuid.startswith(("GPU-", "MIG-")):
        return Card(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid))
    try:
        return Card(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    except nvml.NVMLError:
        return Card(nvml, nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}"))


def visible(told: str | None, uuids: Sequence[str]) -> list[str]:
    """The UUIDs that $CUDA_VISIBLE_DEVICES shows of all, in its order: numbers, or beginnings of UUIDs, up to the first
    that names none. Of cards unlike each other its numbers may mean others here: CUDA counts the fastest first."""
    if told is None:
        return list(uuids)
    found: list[str] = []
    for word in map(str.strip, told.split(",")):
        if word.isdecimal():
            named = list(uuids[int(word) : int(word) + 1])
        else:
            named = [uuid for uuid in uuids if word and uuid.startswith(word)] or [word] * word.startswith("MIG-")
        if len(named) != 1:
            break
        found += named
    return found


def _library() -> Any:
    import pynvml

    pynvml.nvmlInit()
    return pynvml
