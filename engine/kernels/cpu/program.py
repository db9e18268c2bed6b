"""A step of kernels, recorded once over some tokens and run again over any number up to that, by one call.

It is to a CPU what a CUDA graph is to a GPU: between two kernels runs no Python, and all threads stay awake. Every
kernel works on rows of which each token has as many, so the calls of a step of `tokens` serve fewer too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, byref

import torch
from torch import Tensor

from engine.kernels.cpu import structures as held
from engine.kernels.cpu.library import function, work
from engine.kernels.cpu.recorder import Made, Recorder, Unrecordable, place_of

LINE = 64  # bytes; where memory is given out


class Program:
    """What `forward()` computes now, over `tokens` tokens, kept: it reads `inputs` and all other tensors where they
    are, and gives one or more results `[tokens, ...]`. `attention` are the seconds that attention took in the last run.
    Raises Unrecordable."""

    def __init__(self, forward: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor], tokens: int) -> None:
        self.tokens, self.attention = tokens, 0.0
        with Recorder(inputs) as recorder:
            results = forward()
        made = recorder.made()
        places = [_made_by_a_kernel(result, made, tokens) for result in results]
        self._kept, self._parts = recorder.kept, recorder.calls
        offsets, size = plan(self._parts, made, places)
        self._memory = torch.empty(size + LINE, dtype=torch.uint8)
        begin = -self._memory.data_ptr() % LINE
        for call in self._parts:
            for name in call.places():
                address = getattr(call, name)
                place = place_of(made, address)
                if place is not None:
                    moved = self._memory.data_ptr() + begin + offsets[place] + address - made[place].begin
                    setattr(call, name, moved)
        self._results = []
        for result, place in zip(results, places, strict=True):
            first = begin + offsets[place] + result.data_ptr() - made[place].begin
            self._results.append(self._memory[first : first + result.nbytes].view(result.dtype).view(result.shape))
        self._calls = (held.Call * len(self._parts))(*map(self._call, self._parts))
        self._program = held.Program(addressof(self._calls), len(self._parts))

    @property
    def bytes(self) -> int:
        """Of the memory that it computes in."""
        return self._memory.nbytes

    def _call(self, part: held.Structure) -> held.Call:
        each, left = divmod(part.part.rows, self.tokens)
        if left:
            raise Unrecordable(f"{part.work} of {part.part.rows} rows for {self.tokens} tokens")
        return held.Call(work(part.work), addressof(part), each, part.work == "decode_attention")

    def __call__(self, tokens: int) -> list[Tensor]:
        """Runs it over the first `tokens` of its inputs. Results `[tokens, ...]` are overwritten by the next run.
        Raises MemoryError."""
        program = self._program
        program.tokens, program.threads = tokens, torch.get_num_threads()
        if function("run_program")(byref(program)):
            raise MemoryError(f"no memory for a step of {tokens} tokens")
        self.attention = program.attention
        return [result[:tokens] for result in self._results]


def _made_by_a_kernel(result: Tensor, made: Sequence[Made], tokens: int) -> int:
    """The place of a result. Raises Unrecordable where it is none of ours."""
    place = place_of(made, result.data_ptr())
    if place is None or made[place].by or not result.is_contiguous() or result.shape[0] != tokens:
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
