"""Steps on a CPU, recorded once for every number of tokens: what CUDA graphs are to a GPU."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from engine.kernels.cpu.calls import NativeDecode, greedy
from engine.kernels.cpu.program import Program
from engine.kernels.cpu.recorder import Unrecordable
from engine.scheduler.block_pool import blocks_for
from engine.trace.records import Kernels

LONG = 0.3  # seconds of a step of one row, in which what Python takes is not to be seen
SHORT = 0.03  # seconds of one, up to which prompts are recorded too: else recording a run of them takes some seconds
TRIES = 8
MOST_ROWS = 256
MOST_TOKENS = 512  # of a run; a step of more is so many runs, whose values stay near the cores from kernel to kernel
LOGITS = 64 << 20  # bytes that the logits of a recorded step may take
PROVED = 4  # positions of the rows that prove a program
PROVED_PROMPT = 100  # tokens of the prompt that does, at most: several tiles of a product, the last one not full
# Between a program's logits and the model's, relative to the largest of them: they are of the same kernels, but for
# what torch computes between them.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}


Runs = Iterator[tuple[int, int]]  # each filled in as it is asked for: how many tokens it has, and how many are kept


def rows_to_record(slots: int, vocabulary: int, dtype: torch.dtype) -> int:
    """How many rows with logits a recorded step has room for."""
    return max(1, min(slots, MOST_ROWS, LOGITS // (vocabulary * dtype.itemsize)))


def shared(tokens: int, slots: int) -> list[int]:
    """So many tokens as rows, one a slot as far as there are slots."""
    rows = min(tokens, slots)
    return [tokens // rows + (i < tokens % rows) for i in range(rows)]


class StepInputs:
    """What a run of up to `tokens` tokens, `rows` of them with logits, reads at fixed places: `ids` and `positions`
    int64; int32 `blocks` and `offsets`, where each token's K and V go, `owners`, its slot, and the `seen` blocks of
    that, of which there are up to `width`; `adapters` int64, the number of each token's adapter, 0 for none; and `kept`
    int64, the places of the tokens whose logits are wanted. Of a stage but the first also `hidden` `[tokens, hidden]`;
    `arrived` is then what the stage before handed on of all the step."""

    def __init__(
        self, tokens: int, rows: int, slots: int, width: int, block_size: int, hidden: Tensor | None = None
    ) -> None:
        self.tokens, self.rows, self.slots, self.block_size = tokens, rows, slots, block_size
        self.ids, self.positions, self.adapters = torch.zeros(3, tokens, dtype=torch.long)
        self.blocks, self.offsets, self.owners, starts, lengths = torch.zeros(5, tokens, dtype=torch.int32)
        self.kept, self.hidden = torch.arange(rows), hidden
        self.arrived: Tensor | None = None
        tables = torch.zeros(slots, width, dtype=torch.int32)
        self.seen = NativeDecode(tokens, tables, starts, lengths)
        self._tables, self._kept = tables.numpy(), self.kept.numpy()
        places = self.ids, self.positions, self.blocks, self.offsets, starts, lengths, self.adapters, self.owners
        self._places = [x.numpy() for x in places]
        self._known: list[list[int]] = [[] for _ in range(slots)]

    @property
    def all(self) -> list[Tensor]:
        seen = self.seen
        inputs = [self.ids, self.positions, self.blocks, self.offsets, seen.tables, seen.starts, seen.lengths]
        inputs += [self.adapters, self.owners]
        return [*inputs, self.kept, *([] if self.hidden is None else [self.hidden])]

    def fill(
        self,
        ids: Sequence[int],
        firsts: Sequence[int],
        counts: Sequence[int],
        tables: Sequence[list[int]],
        slots: Sequence[int],
        kept: Sequence[int],
        adapters: Sequence[int] = (),
        forgotten: Sequence[int] = (),
    ) -> Runs:
        """Lays out a step: the ids of all its tokens, and of each row where its first token lies in its blocks, how
        many tokens it has, its blocks, its slot, its adapter and how many tokens before it are `forgotten`, none where
        none are given; `kept` are the tokens whose logits are wanted, in order."""
        for slot, blocks in zip(slots, tables, strict=True):
            if self._known[slot] != blocks:
                self._known[slot] = blocks[:]
                self._tables[slot, : len(blocks)] = blocks
        total, width = len(ids), self._tables.shape[1]
        owners, places = np.array(slots), np.array(firsts)
        through = np.array(adapters or [0] * len(counts))
        before = np.array(forgotten or [0] * len(counts))
        if total > len(counts):
            through, before = np.repeat(through, counts), np.repeat(before, counts)
            owners, within = np.repeat(owners, counts), np.arange(total)
            places = np.repeat(places - np.cumsum([0, *counts[:-1]]), counts) + within
        blocks_at, offsets = np.divmod(places, self.block_size)
        blocks_of = self._tables[owners, blocks_at]
        values = [np.array(ids), places + before, blocks_of, offsets, owners * width, places + 1, through, owners]
        return self._runs(values, kept)

    def _runs(self, values: Sequence[np.ndarray], kept: Sequence[int]) -> Runs:
        total = len(values[0])
        runs = -(-total // self.tokens)
        for begin, end in pairwise(total * run // runs for run in range(runs + 1)):
            here = [place - begin for place in kept if begin <= place < end] if runs > 1 else kept
            self._kept[: len(here)] = here
            for there, these in zip(self._places, values, strict=True):
                there[: end - begin] = these[begin:end]
            if self.hidden is not None and self.arrived is not None:
                self.hidden[: end - begin] = self.arrived[begin:end]
            yield end - begin, len(here)


class RecordedSteps:
    """The steps of a model over `blocks` blocks, proved to give the logits `[kept tokens, vocabulary]` that `forward`
    gives over the same inputs, of which a step of `inputs.tokens` tokens was recorded, and the greedy choice of them;
    `forward` is told how many tokens there are and how many are kept. `prompts`: whether steps of any number of tokens
    are replayed, run by run, and not decode rows alone. `names` are those of weights, by their addresses; rows may go
    through so many `adapters`; `clear` makes what else a step reads and changes what it was. Of the last
    step, `spent` int64 are the nanoseconds of each of its `kernels`, `chosen` the likeliest tokens and their
    log-probabilities, overwritten by the next. `report` hears how much of it is done, of how much, and may raise.
    `agree` makes one number of what each rank of a split model has measured. Where a stage `hands_on`, `forward` gives
    what it does `[tokens, hidden]`, of all tokens, in the place of logits. Raises Unrecordable."""

    def __init__(
        self,
        forward: Callable[[int, int], Tensor],
        inputs: StepInputs,
        blocks: int,
        report: Callable[[int, int], None],
        agree: Callable[[float], float] = float,
        hands_on: bool = False,
        names: Mapping[int, str] | None = None,
        adapters: int = 0,
        clear: Callable[[], None] = lambda: None,
    ) -> None:
        self._inputs, tokens, rows = inputs, inputs.tokens, inputs.rows
        self._adapters = adapters
        self._hands_on = hands_on
        self.chosen = list[Tensor]()
        proofs = [shared(count, inputs.slots) for count in sorted({1, -(-rows // 2), rows})]
        report(0, 1 + len(proofs))
        self._rehearse([1], blocks)
        if (seconds := _least_seconds(forward, agree)) > LONG:
            raise Unrecordable(f"a step of {seconds:.1f} s gains nothing by it")
        self.prompts = seconds <= SHORT and tokens > rows
        recorded = proofs[-1]
        if self.prompts:
            recorded = [tokens]
            proofs.append([min(tokens, PROVED_PROMPT)])
        else:
            tokens = inputs.tokens = rows
        self._rehearse(recorded, blocks)

        def step() -> tuple[Tensor, ...]:
            told = forward(tokens, rows)
            return (told,) if hands_on else (told, *greedy(told))

        self._program = Program(step, inputs.all, tokens, None if hands_on else inputs.kept, names)
        for done, counts in enumerate(proofs, 1):
            report(done, 1 + len(proofs))
            count, kept = self._rehearse(counts, blocks)
            clear()
            expected = forward(count, kept).clone()
            clear()
            difference = (self._run(count, kept)[0].float() - expected.float()).abs().max()
            off = agree(float(difference / expected.float().abs().max().clamp_min(1e-6)))
            if not off <= TOLERANCE[expected.dtype]:
                raise Unrecordable(f"replayed over {count} tokens, its logits are off by {off:.2g}")

    def _rehearse(self, counts: Sequence[int], blocks: int) -> tuple[int, int]:
        """Rows at some positions, each in blocks of its own where there are as many."""
        size, tables, total = self._inputs.block_size, list[list[int]](), sum(counts)
        at = [0] if len(counts) == 1 else [i % min(PROVED, size) for i in range(len(counts))]
        for first, count in zip(at, counts):
            needed, taken = blocks_for(first + count, size), sum(map(len, tables))
            tables.append([min(taken + i, blocks - 1) for i in range(needed)])
        kept = range(max(0, total - self._inputs.rows), total)
        ids = [1 + i % 7 for i in range(total)]
        adapters = [(1 + i) % (1 + self._adapters) for i in range(len(counts))]
        (run,) = self._inputs.fill(ids, at, counts, tables, range(len(counts)), kept, adapters)
        return run

    @property
    def kernels(self) -> Kernels:
        """What a step does."""
        kinds = self._program.kinds
        of_all = ((kind.name, kind.calls, kind.weights, kind.bytes, kind.drawn) for kind in kinds)
        return Kernels(*zip(*of_all, strict=True))

    @property
    def spent(self) -> np.ndarray:
        return self._program.spent

    @property
    def rows(self) -> int:
        """How many rows with logits it has room for."""
        return self._inputs.rows

    @property
    def bytes(self) -> int:
        """Of the memory that it computes in."""
        return self._program.bytes

    def __call__(self, runs: Runs, meanwhile: Callable[[], None] | None = None) -> Tensor:
        """The logits `[rows, vocabulary]` of a step whose runs the inputs fill in, or what is handed on of it;
        overwritten by the next step. `meanwhile` is called by this thread while the others begin."""
        self.spent[:], told = 0, list[list[Tensor]]()
        for count, kept in runs:
            if told:  # the next run overwrites them
                told[-1] = [x.clone() for x in told[-1]]
            told.append(self._run(count, kept, meanwhile))
            meanwhile = None
        logits, *self.chosen = told[0] if len(told) == 1 else map(torch.cat, zip(*told, strict=True))
        return logits

    def _run(self, count: int, kept: int, meanwhile: Callable[[], None] | None = None) -> list[Tensor]:
        return self._program(count, None if self._hands_on else kept, meanwhile)

    def greedy(self) -> tuple[Tensor, Tensor]:
        """The likeliest tokens of the last step and their log-probabilities, as the kernel of that name gives them."""
        tokens, logprobs = self.chosen
        return tokens.clone(), logprobs.clone()


def _least_seconds(forward: Callable[[int, int], Tensor], agree: Callable[[float], float]) -> float:
    """Of a step of one token. What is to be chosen by it is chosen for the whole session: a step that other programs
    held up is tried again."""
    least = float("inf")
    for _ in range(TRIES):
        begun = time.perf_counter()
        forward(1, 1)
        least = min(least, agree(time.perf_counter() - begun))
        if not SHORT < least <= LONG:
            break
    return least
