"""A step of kernels, recorded once over some tokens and run again over any number up to that, by one call.

It is to a CPU what a CUDA graph is to a GPU: between two kernels runs no Python, and all threads stay awake. Every
kernel works on rows of which each token has as many, so the calls of a step of `tokens` serve fewer too; and those
after the choice of the tokens whose logits are wanted have as many rows for each of these, those between the sharing of
rows among ranks and their coming together for each of a rank's share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import addressof, byref
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.kernels.cpu import structures as held
from engine.kernels.cpu.exchange import ROWS, SHARE_SUMMED
from engine.kernels.cpu.fusing import fused
from engine.kernels.cpu.library import function, work
from engine.kernels.cpu.recorder import Made, Recorder, Unrecordable, place_of

LINE = 64  # bytes; where memory is given out
TOKENS, KEPT, SHARE = range(3)  # what a call has rows for, as `native/program.c` has them


@dataclass(slots=True)
class Kind:
    """Calls of a program that do the same, in each layer. `name` of products is what their layers are called, else the
    kernel's; they multiply with so many `weights` of so many `bytes` in all; `drawn`: for kept tokens alone."""

    name: str
    calls: int = 0
    weights: int = 0
    bytes: int = 0
    drawn: bool = False


class Program:
    """What `forward()` computes now, over `tokens` tokens, kept: it reads `inputs` and all other tensors where they
    are, and gives one or more results `[tokens, ...]`. `kept` int64, one of the inputs, are the places of the tokens
    that are gone on with from where they are picked by it; results are then `[kept, ...]`. `names` are those of
    weights, by their addresses. `kinds` are what it does, in the order in which they first come, and `spent` int64
    `[kinds]` the nanoseconds of each in all runs since somebody set it to zero. Raises Unrecordable."""

    def __init__(
        self,
        forward: Callable[[], Sequence[Tensor]],
        inputs: Sequence[Tensor],
        tokens: int,
        kept: Tensor | None = None,
        names: Mapping[int, str] | None = None,
    ) -> None:
        self.tokens = tokens
        # In inference mode nobody would hear that a value is read.
        with torch.inference_mode(False), torch.no_grad(), Recorder(inputs, tokens) as recorder:
            results = forward()
        made = recorder.made()
        rows = tokens if kept is None else len(kept)
        places = [_made_by_a_kernel(result, made, rows) for result in results]
        self._kept, self._parts = recorder.kept, fused(recorder.calls, made, places)
        rank, ranks = _rank(self._parts)
        counts = tokens, rows, tokens * (rank + 1) // ranks - tokens * rank // ranks
        if tokens < ranks:
            raise Unrecordable(f"{tokens} tokens are too few for {ranks} ranks to share")
        self._calls = (held.Call * len(self._parts))()
        kinds = dict[str, Kind]()
        for call, part, counted in zip(self._calls, self._parts, _counted(self._parts, made, kept), strict=True):
            call.work, call.part, call.counted = work(part.work), addressof(part), counted
            kind, count = _kind(kinds, part, names or {}), counts[counted]
            call.kind, kind.drawn = list(kinds).index(kind.name), bool(kind.weights) and counted == KEPT
            call.each, left = divmod(part.part.rows, count)
            if left:
                raise Unrecordable(f"{part.work} of {part.part.rows} rows for {count} tokens")
        offsets, size = plan(self._parts, made, places)
        self._memory = torch.empty(size + LINE, dtype=torch.uint8)
        begin = -self._memory.data_ptr() % LINE
        for part in self._parts:
            for name in part.places():
                address = getattr(part, name)
                place = place_of(made, address)
                if place is not None:
                    moved = self._memory.data_ptr() + begin + offsets[place] + address - made[place].begin
                    setattr(part, name, moved)
        self._results = []
        for result, place in zip(results, places, strict=True):
            first = begin + offsets[place] + result.data_ptr() - made[place].begin
            self._results.append(self._memory[first : first + result.nbytes].view(result.dtype).view(result.shape))
        self.kinds, self.spent = tuple(kinds.values()), np.zeros(len(kinds), np.int64)
        given = addressof(self._calls), self.spent.ctypes.data, len(self._parts)
        self._program = held.Program(*given, 0, 0, rank, ranks)

    @property
    def bytes(self) -> int:
        """Of the memory that it computes in."""
        return self._memory.nbytes

    def __call__(
        self, tokens: int, kept: int | None = None, meanwhile: Callable[[], None] | None = None
    ) -> list[Tensor]:
        """Runs it over the first `tokens` of its inputs, `kept` of which are gone on with. Results `[kept or tokens,
        ...]` are overwritten by the next run. `meanwhile` is called on this thread while the others compute, which then
        joins them; it must not raise. Raises MemoryError."""
        program, rows = self._program, tokens if kept is None else kept
        program.tokens, program.kept, program.threads = tokens, rows, torch.get_num_threads()
        program.meanwhile = held.NOTHING if meanwhile is None else held.Meanwhile(meanwhile)
        if function("run_program")(byref(program)):
            raise MemoryError(f"no memory for a step of {tokens} tokens")
        return [result[:rows] for result in self._results]


def _kind(kinds: dict[str, Kind], call: held.Structure, names: Mapping[int, str]) -> Kind:
    """That of a call, which it counts."""
    name = names.get(call.weight, call.work) if isinstance(call, held.Product) else call.work
    if isinstance(call, held.Experts):
        name = f"{call.work} {'gate_up' if call.gate else 'down'}"
    kind = kinds.setdefault(name, Kind(name))
    kind.calls += 1
    if isinstance(call, (held.Product, held.Heads, held.Route, held.Experts)):
        kind.weights, kind.bytes = kind.weights + call.matrix, kind.bytes + call.matrix_bytes
    return kind


def _rank(calls: Sequence[held.Structure]) -> tuple[int, int]:
    """Which rank of how many this is, where ranks share rows; else the only one."""
    return next(((call.rank, call.ranks) for call in calls if isinstance(call, held.Share)), (0, 1))


def _counted(calls: Sequence[held.Structure], made: Sequence[Made], kept: Tensor | None) -> list[int]:
    """What each call has rows for: every token, those that are kept, or those of this rank's share. What reads what was
    made for some of them is for these too, until ranks hand their shares to all."""
    known, told = dict[int, int](), []
    for call in calls:
        places = [place_of(made, getattr(call, name)) for name in call.places()]
        found = {known[place] for place in places[call.writes :] if place in known}
        if isinstance(call, held.Lookup) and kept is not None and call.ids == kept.data_ptr():
            found = {KEPT}
        if isinstance(call, held.Exchange) and call.kind == ROWS:
            found = set()
        if len(found) > 1:
            raise Unrecordable(f"{call.work} reads rows of different counts")
        counted = found.pop() if found else TOKENS
        told.append(counted)
        if isinstance(call, held.Share) or (isinstance(call, held.Exchange) and call.kind == SHARE_SUMMED):
            counted = SHARE
        if counted != TOKENS:
            known |= {place: counted for place in places[: call.writes] if place is not None}
    return told


def _made_by_a_kernel(result: Tensor, made: Sequence[Made], rows: int) -> int:
    """The place of a result. Raises Unrecordable where it is none of ours."""
    place = place_of(made, result.data_ptr())
    if place is None or made[place].by or not result.is_contiguous() or result.shape[0] != rows:
        maker = made[place].by if place is not None else ""
        raise Unrecordable(f"its result is made by {maker or 'no kernel'}")
    return place


def plan(calls: Sequence[held.Structure], made: Sequence[Made], results: Sequence[int]) -> tuple[list[int], int]:
    """Where each piece of memory lies in one that all share, in bytes, and how large that is: two whose times between
    the first call that names them and the last one overlap lie apart. `results` are read after the last call."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, call in enumerate(calls):
        for name in call.places():
            place = place_of(made, getattr(call, name))
            if place is not None:
                first.setdefault(place, i)
                last[place] = i
    last |= dict.fromkeys(results, len(calls))
    offsets, size = [0] * len(made), 0
    given: list[tuple[int, int, int]] = []  # begin, end and last call of what is in use
    for place in sorted(first, key=lambda place: first[place]):
        given = sorted(each for each in given if each[2] >= first[place])
        wanted, begin = -(-made[place].bytes // LINE) * LINE, 0
        for used, end, _ in given:
            if begin + wanted <= used:
                break
            begin = max(begin, end)
        given.append((begin, begin + wanted, last[place]))
        offsets[place], size = begin, max(size, begin + wanted)
    return offsets, size
