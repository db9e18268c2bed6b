"""The attention kernels alone: decoding by the bytes of K and V that it reads, prompts beside torch's flash attention.

As in a model, calls follow one another on caches of different layers while the rows stay, all in one CUDA graph; there
are as many caches as it takes that none is found in the GPU's own cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from engine.bench.gpu.report import Bench, Table, columns
from engine.bench.gpu.stopwatch import CpuStopwatch, GpuStopwatch, Stopwatch, one_after_another, sets_beyond_cache
from engine.bench.gpu.tests import ONE_THREAD
from engine.kernels.attention.options import Options
from engine.kernels.attention.packed_rows import PackedRows
from engine.kernels.attention.paged_attention import paged_attention
from engine.kernels.attention.tilings import Rows, Tiling, candidates, device_facts, usual_tiling
from engine.kernels.dependent_launch import step_of

BLOCK = 16
K = 1024
LAYERS = 32  # that share a plan, at most: as many as a model has
DECODE, ALONE, PREFILL = 0.8, 0.6, 0.7  # goals
LARGE = 100e6  # bytes of K and V from which a launch does not count
COMPILERS = 8  # processes
PROGRAMS = 1, 2, 3, 4, 8, 16  # a multiprocessor, that a decode row is split for
THOROUGH = 120.0  # seconds from which all candidates are tried, over all cases
ROOM = 0.7  # of the free memory, for caches
ONE_ROW = "context 8d | tiles 6d | whole µs 9.1f | split µs 9.1f"


@dataclass(frozen=True, slots=True)
class Case:
    """`batch` rows of `queries` tokens each, the last of `context`; `group` query heads a KV head. `uneven`: contexts
    of an eighth of it to as much more than it, in random order, which it is the mean of."""

    batch: int
    context: int
    group: int
    queries: int = 1
    uneven: bool = False

    @property
    def tokens(self) -> int:
        return self.batch * self.queries

    @property
    def longest(self) -> int:
        return 2 * self.context - self.context // 8 if self.uneven else self.context

    def contexts(self, device: torch.device) -> Tensor:
        """int32 `[batch]`."""
        if not self.uneven:
            return torch.full((self.batch,), self.context, dtype=torch.int32, device=device)
        lengths = torch.linspace(self.context // 8, self.longest, self.batch, device=device).round().int()
        return lengths[torch.randperm(self.batch, device=device)]

    @property
    def name(self) -> tuple[int, int, int]:
        return self.batch, self.context, self.group


class Pool:
    """Random K and V in blocks, as many as there is room for, and cases laid out over them."""

    def __init__(self, watch: Stopwatch, kv_heads: int, head_dim: int, most: int) -> None:
        self.watch, self.kv_heads, self.head_dim = watch, kv_heads, head_dim
        self.token_bytes = 2 * kv_heads * head_dim * watch.dtype.itemsize
        blocks = min(ceil(most / BLOCK), int(ROOM * watch.free()) // (BLOCK * self.token_bytes))
        shape = (blocks, BLOCK, kv_heads, head_dim)
        self.k, self.v = (torch.empty(shape, dtype=watch.dtype, device=watch.device).normal_() for _ in range(2))

    def holds(self, case: Case, table: Table | None = None) -> bool:
        """Whether there is room for the case; the table is told of one for which there is none."""
        held = self._blocks(case) <= len(self.k)
        if not held and table is not None:
            table.say(f"batch {case.batch}, context {case.context}: not measured, its KV does not fit the memory")
        return held

    def _blocks(self, case: Case) -> int:
        return case.batch * ceil(case.longest / BLOCK)

    def read(self, case: Case) -> int:
        """Bytes that a call must move: K and V of all contexts once, queries and what comes of them."""
        moved = 2 * case.tokens * case.group * self.kv_heads * self.head_dim * self.watch.dtype.itemsize
        return case.batch * case.context * self.token_bytes + moved

    def lay_out(self, case: Case) -> Laid:
        return Laid(self, case)

    def slices(self, case: Case, most: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The caches of different layers, one after another, `[blocks, block_size, kv_heads, head_dim]`."""
        each = self._blocks(case)
        for i in range(max(1, min(most, len(self.k) // each))):
            at = slice(i * each, (i + 1) * each)
            yield self.k[at], self.v[at]


class Laid:
    """A case's tensors, its blocks in random order."""

    def __init__(self, pool: Pool, case: Case) -> None:
        watch, width = pool.watch, ceil(case.longest / BLOCK)
        self.case, self._watch = case, watch
        on: dict[str, Any] = {"device": watch.device}
        self._tables = torch.randperm(case.batch * width, **on).view(case.batch, width).int()
        self._starts = torch.arange(case.batch + 1, dtype=torch.int32, **on) * case.queries
        self._contexts = case.contexts(watch.device)
        sets = sets_beyond_cache(watch, pool.read(case), LAYERS)
        self._caches = list(pool.slices(case, sets))
        heads = case.group * pool.kv_heads
        self._queries = [torch.randn(case.tokens, heads, pool.head_dim, dtype=watch.dtype, **on) for _ in self._caches]
        self._options = Options(pool.head_dim**-0.5)

    def seconds(self, tiling: Tiling | None = None) -> float:
        """Of one call, with its share of what is planned once a step."""
        return self._watch.seconds(self._watch.captured(lambda: self.call(tiling))) / len(self._caches)

    def call(self, tiling: Tiling | None = None) -> None:
        """One on each cache, launched as the layers of a model do in a captured step."""
        short = len(self._contexts) if self.case.queries == 1 else 0
        rows = PackedRows(self._starts, self._contexts, self._tables, short=short)
        with step_of(self.case.tokens):
            for (k, v), q in zip(self._caches, self._queries):
                paged_attention(q, k, v, rows, self._options, tiling=tiling)


@dataclass
class Kernels:
    """The cases that are measured, and a pool for them."""

    bench: Bench

    @cached_property
    def pool(self) -> Pool:
        if self.bench.rehearsal:
            return Pool(self.bench.watch, 1, 32, 512)
        return Pool(self.bench.watch, 8, 128, 256 * 32 * K)

    @property
    def decode(self) -> list[Case]:
        """The most telling first, what the yardstick's model has among them; all of groups of 4, then of 8."""
        if self.bench.rehearsal:
            return [Case(1, 20, 4), Case(3, 20, 8), Case(300, 20, 8), Case(3, 20, 8, uneven=True)]
        sizes = [(1, 8), (64, 8), (256, 1), (1, 1), (1, 32), *((batch, k) for batch in (8, 32) for k in (1, 8, 32))]
        sizes += [(64, 1), (64, 32), (256, 8), (256, 32)]
        cases = [Case(batch, k * K, group) for group in (4, 8) for batch, k in sizes]
        return [*cases[:3], *(Case(256, K, 2, uneven=uneven) for uneven in (False, True)), *cases[3:], Case(64, K, 2)]

    @property
    def prefill(self) -> list[Case]:
        if self.bench.rehearsal:
            return [Case(1, 20, 4, 20)]
        return [Case(1, k * K, group, k * K) for group in (4, 8) for k in (2, 4, 8, 16)]


def decode_kernel(bench: Bench) -> None:
    """Share of the copy bandwidth at which decoding reads K and V."""
    kernels = Kernels(bench)
    pool, watch = kernels.pool, bench.watch
    table = bench.table(
        f"Decode attention, {pool.kv_heads} KV heads of {pool.head_dim}, {_name(watch)}, blocks of {BLOCK} in random "
        "order",
        columns("batch 6d | context 8d | group 5d | MB 9,.1f | µs 9.1f | bound µs 9.1f | of copy 8.0% | 6"),
    )
    reached: dict[Case, float] = {}
    for case in kernels.decode:
        if pool.holds(case, table) and bench.fits(
            1, table, f"batch {case.batch}, context {case.context}, group {case.group}"
        ):
            read = pool.read(case)
            seconds = pool.lay_out(case).seconds()
            bound = read / watch.bandwidth
            reached[case] = bound / seconds
            lengths = "uneven" if case.uneven else ""
            table.add(*case.name, read / 1e6, 1e6 * seconds, 1e6 * bound, reached[case], lengths)
    _tell_one_row(bench, kernels)
    what = "of the copy bandwidth: decode attention,"
    alone = [share for case, share in reached.items() if case.batch == 1 and case.context == 8 * K]
    even = {case: share for case, share in reached.items() if not case.uneven}
    large = [share for case, share in even.items() if pool.read(case) >= LARGE]
    little = [share for case, share in even.items() if pool.read(case) < LARGE and case.batch > 1]
    for words, goal, shares in (
        (f"worst of those of {LARGE / 1e6:.0f} MB and more", DECODE, large),
        ("worst of the smaller ones of several rows", DECODE, little),
        ("batch 1, context 8 k", ALONE, alone),
    ):
        if shares:
            bench.goal(f"{what} {words}", goal, min(shares))


def _tell_one_row(bench: Bench, kernels: Kernels) -> None:
    """What a program's beginning and end cost, and a tile, where nothing runs beside it; and what splitting does."""
    pool = kernels.pool
    table = bench.table("One row, group 4: by one program a KV head, and as it is split", columns(ONE_ROW))
    tiles = usual_tiling(device_facts(bench.watch.device)[0], Rows.SHORT, pool.head_dim, bench.watch.dtype, 4, 1)
    for context in (1, 20) if bench.rehearsal else (1, 64, 128, 256, 1 * K, 4 * K):
        laid = pool.lay_out(Case(1, context, 4))
        whole, split = laid.seconds(replace(tiles, programs=0)), laid.seconds()
        table.add(context, -(-context // tiles.block_keys), 1e6 * whole, 1e6 * split)


def prefill_kernel(bench: Bench) -> None:
    """Beside torch's flash attention on the same shapes."""
    kernels = Kernels(bench)
    pool, watch = kernels.pool, bench.watch
    table = bench.table(
        f"Prefill attention, causal, {pool.kv_heads} KV heads of {pool.head_dim}, {_name(watch)}",
        columns(
            "tokens 7d | group 5d | µs 9.1f | TFLOP/s 8.1f | of matrix 9.0% | "
            "flash µs 9.1f | of flash 8.0% | flash by 12"
        ),
    )
    reached = []
    for case in kernels.prefill:
        if not (pool.holds(case, table) and bench.fits(2, table, f"{case.context} tokens, group {case.group}")):
            continue
        seconds = pool.lay_out(case).seconds()
        flash, name = flash_seconds(watch, case, pool.kv_heads, pool.head_dim)
        rate = 2 * case.context**2 * pool.head_dim * case.group * pool.kv_heads / seconds
        reached.append(flash / seconds)
        ours = 1e6 * seconds, rate / 1e12, rate / watch.operations
        table.add(case.context, case.group, *ours, 1e6 * flash, reached[-1], name)
    if reached:
        what = "of the speed of torch's flash attention: prefill attention, worst of 2 k to 16 k"
        bench.goal(what, PREFILL, min(reached))


def flash_seconds(watch: Stopwatch, case: Case, kv_heads: int, head_dim: int) -> tuple[float, str]:
    """torch's flash attention over contiguous K and V, and how it took the groups: by itself, or with K and V copied
    to every query head off the clock."""
    on: dict[str, Any] = {"device": watch.device, "dtype": watch.dtype}
    q = torch.randn(1, kv_heads * case.group, case.context, head_dim, **on)
    k, v = (torch.randn(1, kv_heads, case.context, head_dim, **on) for _ in range(2))

    def seconds(k: Tensor, v: Tensor, groups: bool) -> float:
        def attend(given: tuple[Tensor, Tensor, Tensor]) -> Tensor:
            q, k, v = given
            return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=groups)

        return one_after_another(watch, [(q, k, v)], attend)

    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        try:
            return seconds(k, v, True), "groups"
        except RuntimeError:  # it does not know groups
            k, v = (x.repeat_interleave(case.group, 1) for x in (k, v))
            return seconds(k, v, False), "copies"


def tilings(bench: Bench) -> None:
    """What each candidate of `engine.kernels.attention.tilings` takes: the fastest beside the shipped one. Where time
    is short, as beside other sections, each cut of a tile once, over a few cases."""
    kernels = Kernels(bench)
    pool = kernels.pool
    table = bench.table(
        "Tilings: the fastest of the candidates beside the shipped",
        columns(
            "rows 5 | batch 6d | context 8d | group 5d | "
            "shipped µs 10.1f | best µs 9.1f | × faster 8.2f | tried 5d | 60"
        ),
    )
    uneven, thorough = Case(256, K, 2, uneven=True), bench.limit >= THOROUGH
    if bench.rehearsal:
        cases = [kernels.decode[0], kernels.prefill[0]]
    elif thorough:
        compile_beforehand(0.5 * bench.left)
        long = [Case(1, k * K, 4, k * K) for k in (8, 2)]
        cases = [Case(64, 8 * K, 4), long[0], Case(1, 8 * K, 4), uneven, Case(64, 8 * K, 8)]
        cases += [Case(1, 8 * K, 8), Case(256, K, 4), long[1]]
    else:
        cases = [uneven, Case(1, 8 * K, 4), Case(1, K, 4), Case(64, 8 * K, 4), Case(8, K, 4)]
    for case in cases:
        if pool.holds(case, table) and bench.fits(0 if bench.rehearsal else 4, table, str(case)):
            _try_tilings(bench, pool, case, table, thorough)


def _once_each(tilings: Sequence[Tiling]) -> list[Tiling]:
    """The first of each cut of a tile: the others differ in how a row is split alone, and are compiled as one."""
    cuts: dict[Tiling, Tiling] = {}
    for tiles in tilings:
        cuts.setdefault(replace(tiles, programs=0), tiles)
    return list(cuts.values())


def _try_tilings(bench: Bench, pool: Pool, case: Case, table: Table, thorough: bool) -> None:
    rows = Rows.SHORT if case.queries == 1 else Rows.LONG
    laid = pool.lay_out(case)
    shipped = laid.seconds()
    found: dict[Tiling, float] = {}
    tried = candidates(rows, pool.head_dim, case.group, case.queries)

    def time(tilings: Sequence[Tiling]) -> None:
        for tiling in tilings:
            if tiling in found or bench.left < 3 or (bench.rehearsal and len(found) == 3):
                continue
            try:
                found[tiling] = laid.seconds(tiling)
            except Exception as error:  # too large for this GPU's shared memory, say
                table.say(f"{tiling}: {type(error).__name__}: {str(error)[:100]}")

    time(tried if thorough else _once_each(tried))
    if found and rows is Rows.SHORT:  # how a row is split alone: nothing is compiled anew
        best = min(found, key=lambda tiling: found[tiling])
        time([replace(best, programs=programs) for programs in PROGRAMS])
    if not found:
        table.say(f"{case}: there was nothing to try")
    else:
        best = min(found, key=lambda tiling: found[tiling])
        times = 1e6 * shipped, 1e6 * found[best], shipped / found[best]
        table.add(rows.value, *case.name, *times, len(found), str(best))
        table.rows[-1]["all"] = {str(tiling): 1e6 * seconds for tiling, seconds in found.items()}


def compile_beforehand(seconds: float) -> None:
    """Compiles all candidates in several processes, since each uses one core; Triton keeps what they made on disk."""
    count = max(1, min(COMPILERS, (os.cpu_count() or 2) // 2))
    code = "from engine.bench.gpu.sections.attention import compile_share; compile_share({}, {})"
    environment = {**os.environ, **ONE_THREAD}
    children = [subprocess.Popen([sys.executable, "-c", code.format(i, count)], env=environment) for i in range(count)]
    end = time.monotonic() + seconds
    try:
        for child in children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.1, end - time.monotonic()))
    finally:
        for child in children:
            child.kill()


def compile_share(number: int, count: int, thorough: bool = True) -> None:
    """Every `count`th candidate from `number` on, launched once on little: its size is no part of what is compiled.
    Those that are tried where time is short come first."""
    watch = GpuStopwatch() if torch.cuda.is_available() else CpuStopwatch()
    pool = Pool(watch, 8, 128, 4 * K)
    depends = [(Rows.SHORT, Case(1, 2 * K, group)) for group in (4, 2, 8)]
    apart = [(Rows.SHORT, Case(64, 64, group)) for group in (4, 2, 8)]  # so many rows' launches do not depend
    cases = [depends[0], apart[0], depends[1], apart[1]]
    if thorough:
        cases += [(Rows.LONG, Case(1, 2 * K, 4, 2 * K)), depends[2], apart[2]]
    tried: list[tuple[Case, Tiling]] = []
    for rows, case in cases:
        tried += [(case, tiling) for tiling in _once_each(candidates(rows, pool.head_dim, case.group, case.queries))]
    for case, tiling in tried[number::count]:
        with suppress(Exception):  # it is told when it is measured
            pool.lay_out(case).call(tiling)


def _name(watch: Stopwatch) -> str:
    return str(watch.dtype).removeprefix("torch.")
