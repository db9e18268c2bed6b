"""What a launch does to memory, checked as it is done: what compute-sanitizer tells on a GPU, and what races there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import triton
from numpy.typing import NDArray
from torch import Tensor

from tests.sanitizer.arguments import Addresses, Argument, Places, in_regions
from tests.sanitizer.benign import LAST_IS_THE_DUMMIES, STORED_BY_SEVERAL, UNSPECIFIED, UNWRITTEN
from tests.sanitizer.order import Order
from tests.sanitizer.unwritten import leave_unspecified, unwritten

ROOT = Path(__file__).parents[2]
_NOT_KERNELS = tuple(
    map(str, (Path(__file__).parent, ROOT / "tests" / "quick_interpreter.py", Path(triton.__file__).parent))
)
KEPT: list[str] = []  # all faults of this process: an engine may outlive the error of one


class Fault(Exception):
    """A kernel did to memory what it must not do."""


class Launch:
    """One launch of a kernel, whose programs begin one after another, in any order.

    Within a program only a load or store of what was stored since its last barrier is a fault. What it loads first and
    stores then is none: whatever depends on what all its threads have loaded waits for them, which cannot be told here.
    """

    def __init__(self, kernel: str, tensors: dict[int, tuple[str, Tensor]], programs: int) -> None:
        """`tensors` with their names, by the identity of their pointers' type."""
        self.kernel, self.alone = kernel, programs == 1
        self._arguments = {key: Argument(name, tensor) for key, (name, tensor) in tensors.items()}
        self._ordered = in_regions(self._arguments.values())
        self.order = Order()
        self._program: tuple[int, ...] = ()
        self._stored: dict[int, Addresses] = {}  # by number, since the last barrier
        self._atomic: list[int] = []  # numbers of atomic operations

    def begin(self, program: tuple[int, ...]) -> None:
        self._program = program
        self._stored.clear()
        self.order.begin(program)

    def end(self) -> None:
        for argument in self._ordered:
            if (self.kernel, argument.name) in UNSPECIFIED:
                leave_unspecified(argument.start, argument.stop, argument.itemsize)

    def barrier(self) -> None:
        self._stored.clear()
        self.order.barrier()

    def load(self, pointers: Any, mask: NDArray[np.bool_] | None) -> None:
        argument = self._argument(pointers)
        within = self._within(argument, pointers.data, mask, "loads")
        if within is None:
            return
        addresses, mask = within
        region, order = argument.region, self.order
        number = order.next
        order.next += 1
        if region.stored is None:
            if not self.alone:
                region.kept.append((argument, addresses, mask, number, order.first))
            return
        chosen = addresses if mask is None else addresses[mask]
        at = region.places(argument, chosen)
        before = region.stored[at]
        if before.size and before.max():
            self._check(argument, at, before, "loads", "stored")
            mine = before >= order.segment_first
            if mine.any():
                self._tell_no_barrier(argument, at, mine, "loads")
        if not self.alone:
            self._note_load(argument, at, number, order.first)

    def loaded(self, pointers: Any, mask: NDArray[np.bool_], values: NDArray[Any]) -> None:
        """Fails where a value was never written."""
        found = unwritten(values)
        if found is not None and (found := found & mask).any():
            argument, address = self._argument(pointers), int(pointers.data[found].flat[0])
            if (self.kernel, argument.name) in UNWRITTEN:
                return
            self._tell("initcheck", f"loads {argument.element(address)}, which nobody has written")

    def store(self, pointers: Any, mask: NDArray[np.bool_] | None, values: NDArray[Any]) -> None:
        argument = self._argument(pointers)
        within = self._within(argument, pointers.data, mask, "stores")
        if within is None:
            return
        chosen = within[0] if within[1] is None else within[0][within[1]]
        at, before = self._write(argument, chosen, "stores", "stored")
        order, region = self.order, argument.region
        if before.size and before.max() >= order.segment_first:
            mine = before >= order.segment_first
            earlier = self._stored.get(int(before[mine][0]))
            # The same tile lies with the same threads, so its stores stay in order.
            if earlier is None or earlier.shape != chosen.shape or (earlier != chosen).any():
                self._tell_no_barrier(argument, at, mine, "stores")
        assert region.stored is not None
        region.stored[at] = order.next
        self._stored[order.next] = chosen
        if chosen.size > 1 and (np.diff(at) <= 0).any():
            self._check_once(argument, chosen, np.broadcast_to(values, pointers.data.shape), mask, within)
        order.next += 1

    def atomic(self, pointers: Any, mask: NDArray[np.bool_] | None, sem: str, scope: str) -> None:
        argument = self._argument(pointers)
        within = self._within(argument, pointers.data, mask, "changes atomically")
        if within is None:
            return
        chosen = within[0] if within[1] is None else within[0][within[1]]
        at, before = self._write(argument, chosen, "changes atomically", "stored")
        order, region = self.order, argument.region
        mine = (before >= order.segment_first) & ~np.isin(before, self._atomic)
        if mine.any():
            self._tell_no_barrier(argument, at, mine, "changes atomically")
        assert region.stored is not None
        region.stored[at] = order.next
        self._atomic.append(order.next)
        order.next += 1
        if scope != "CTA" and sem != "RELAXED":
            for address in chosen.reshape(-1).tolist():
                if "ACQUIRE" in sem:
                    order.acquire(address)
                if "RELEASE" in sem:
                    order.release(address)

    def _argument(self, pointers: Any) -> Argument:
        found = self._arguments.get(id(pointers.dtype))
        if found is None:  # a pointer that was cast: the argument it points into
            first = int(pointers.data.flat[0])
            below = [each for each in self._ordered if each.start <= first] or self._ordered
            found = below[-1]
        return found

    def _within(
        self, argument: Argument, addresses: Addresses, mask: NDArray[np.bool_] | None, does: str
    ) -> tuple[Addresses, NDArray[np.bool_] | None] | None:
        """The addresses, and those of them that are meant, all for None; None where there are none. Fails where one is
        not an element of the argument."""
        if addresses.size == 1:
            if mask is not None and not mask.all():
                return None
            low = high = addresses.item()
            mask = None
        else:
            low, high = int(addresses.min()), int(addresses.max())
            if low < argument.start or high > argument.last:
                addresses = addresses if mask is None else addresses[mask]
                mask = None
                if not addresses.size:
                    return None
                low, high = int(addresses.min()), int(addresses.max())
        if low < argument.start or high > argument.last:
            self._tell("memcheck", f"{does} outside {argument.element(low if low < argument.start else high)}")
        if argument.own is not None:
            addresses = addresses if mask is None else addresses[mask]
            mask = None
            own = argument.own[(addresses - np.uint64(argument.start)) // np.uint64(argument.itemsize)]
            if not own.all():
                self._tell("memcheck", f"{does} outside {argument.element(int(addresses[~own].flat[0]))}")
        return addresses, mask

    def _write(self, argument: Argument, addresses: Addresses, does: str, did: str) -> tuple[Places, NDArray[np.int32]]:
        """The granules that are written, and who stored there last. Fails where that races."""
        region = argument.region
        if region.stored is None:
            region.stored = region.blank()
            for kept, given, mask, number, first in region.kept:
                chosen = given if mask is None else given[mask]
                self._note_load(kept, region.places(kept, chosen), number, first)
            region.kept.clear()
        at = region.places(argument, addresses)
        before = region.stored[at]
        if before.size and before.max():
            self._check(argument, at, before, does, did)
        if region.loaded is not None and region.loaded_by_another is not None:
            for loads in (region.loaded[at], region.loaded_by_another[at]):
                if loads.size and loads.max():
                    self._check(argument, at, loads, does, "loaded")
        return at, before

    def _note_load(self, argument: Argument, at: Places, number: int, first: int) -> None:
        """`first` is the number of the program that loads."""
        region = argument.region
        if region.loaded is None or region.loaded_by_another is None:
            region.loaded, region.loaded_by_another = region.blank(), region.blank()
        before = region.loaded[at]
        if before.size and before.max():
            another = (before > 0) & (before < first)
            region.loaded_by_another[at[another]] = before[another]
        region.loaded[at] = number

    def _check(self, argument: Argument, at: Places, before: NDArray[np.int32], does: str, did: str) -> None:
        """Fails where another program did what this one cannot know to be done."""
        others = (before > 0) & (before < self.order.first)
        key = self.kernel, argument.name
        if (does, did) == ("stores", "stored") and key in STORED_BY_SEVERAL:
            return
        if (does, did) == ("stores", "stored") and key in LAST_IS_THE_DUMMIES:
            others &= at < (argument.last_entry - argument.region.start) // argument.region.granule
        if not others.any():
            return
        for number in np.unique(before[others]).tolist():
            both_atomic = "atomically" in does and number in self._atomic
            if not both_atomic and not self.order.is_done(number):
                place = argument.region.start + int(at[others & (before == number)][0]) * argument.region.granule
                by = self.order.program(number)
                told = f"{does} {argument.element(place)}, which program {by} has {did}, unordered"
                self._tell("racecheck", told)

    def _check_once(
        self,
        argument: Argument,
        chosen: Addresses,
        values: NDArray[Any],
        mask: NDArray[np.bool_] | None,
        within: tuple[Addresses, NDArray[np.bool_] | None],
    ) -> None:
        """Fails where one tile stores two values in one place: which of them stays is any thread's luck."""
        stored = values if mask is None else values[mask]
        flat, bits = chosen.reshape(-1), np.ascontiguousarray(stored).reshape(-1)
        order = np.argsort(flat, kind="stable")
        again = flat[order][1:] == flat[order][:-1]
        if again.any():
            raw = bits.view(f"u{bits.itemsize}") if bits.dtype != bool else bits
            differ = again & (raw[order][1:] != raw[order][:-1])
            if differ.any():
                address = int(flat[order][1:][differ][0])
                self._tell("racecheck", f"stores two values at once at {argument.element(address)}")

    def _tell_no_barrier(self, argument: Argument, at: Places, mine: NDArray[np.bool_], does: str) -> NoReturn:
        place = argument.region.start + int(at[mine][0]) * argument.region.granule
        self._tell("racecheck", f"{does} {argument.element(place)}, which it has stored itself with no barrier since")

    def _tell(self, tool: str, what: str) -> NoReturn:
        fault = f"{tool}: {self.kernel}, program {self._program}, {_line()}: {what}"
        KEPT.append(fault)
        raise Fault(fault)


def _line() -> str:
    """The kernel's line that is running."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_KERNELS):
        frame = frame.f_back
    if frame is None:
        return "somewhere"
    file = Path(frame.f_code.co_filename)
    return f"{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}:{frame.f_lineno}"
