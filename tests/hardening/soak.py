"""One engine's process for thousands of turns of anything that a person may ask: blocks are conserved, memory stays
flat, and no thread, file or process is left."""

import contextlib
import gc
import os
import threading
import time
import traceback
from collections.abc import Callable
from operator import sub
from random import Random
from typing import Any

import psutil

from engine import EngineConfig, EngineProcess, InvalidInput, ModelSpec, SamplingParams, Submission
from engine.trace import Step, Trace
from tests.children import children
from tests.engine.scheduler.told_blocks import ToldBlocks
from tests.hardening.found import Found

DRAFT = ModelSpec("demo-draft")
POOL = 1 << 20  # bytes: 512 tokens, so that requests wait and are preempted
PART = 1500  # turns with one engine
BEGUN, WARM = 50, 750  # turns after which its files and threads, and its memory, are to stay as they are
KEPT = "16"  # of what oneDNN keeps for every shape that it has seen: with all of it, memory is flat after 5,000 turns
GROWTH = 48 << 20  # bytes that either process may still grow by
PATIENCE = 60.0  # seconds until all that was asked is done
MODES = ("continuous", "chunked", "continuous", "chunked", "static", "dynamic", "continuous-padded", "sequential")


class Defect(Exception):
    pass


def soak(count: int, seed: int, begin: int = 0) -> Found:
    """So many turns, from this number on; every PART of them has an engine of its own, from its first turn on."""
    found, threads, processes = Found(), set(threading.enumerate()), children()
    files = psutil.Process().num_fds()
    if count > WARM:
        os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = KEPT
    for first in range(begin - begin % PART, begin + count, PART):
        soaking, number = Soak(Random(f"soak/{seed}/{first}")), first
        try:
            for number in range(first, min(first + PART, begin + count)):
                soaking.turn()
                if number - first == BEGUN:
                    soaking.handles = soaking.count_handles()
                elif number - first == WARM:
                    soaking.before = soaking.weigh()
                found.add("soak", number, "kept", "")
            soaking.check()
        except Exception:
            found.add("soak", number, "defect", traceback.format_exc())
        finally:
            soaking.engine.close()
        del soaking
    gc.collect()
    for name, left in (
        ("threads", set(threading.enumerate()) - threads),
        ("processes", children() - processes),
        ("files", max(0, psutil.Process().num_fds() - files - 4)),  # of the server that forks, once it is there
    ):
        if left:
            found.add("soak", begin, "defect", f"{name} are left: {left}")
    return found


class Soak:
    """An engine under random turns."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.engine = EngineProcess(DRAFT, EngineConfig(max_running=8, token_budget=256, kv_memory=POOL), threads=1)
        self.told = ToldBlocks()
        self.trace: Trace = self.engine.trace
        self.read = 0
        self.before: tuple[int, ...] = ()
        self.handles: tuple[int, ...] = ()

    def turn(self) -> None:
        turns: tuple[tuple[Callable[[], Any], int], ...] = (
            (self.submit, 12),
            (self.cancel, 6),
            (self.flood, 1),
            (self.mistake, 3),
            (self.begin, 1),
            (self.wait, 6),
        )
        do, weights = zip(*turns, strict=True)
        self.rng.choices(do, weights)[0]()
        self.follow()

    def submit(self, many: int = 3) -> None:
        rng, paged = self.rng, self.engine.config.paged
        given = []
        for _ in range(rng.randint(1, many)):
            prompt: Any = rng.choice(("Once", "There was a fox " * rng.randint(1, 30), [5] * rng.randint(1, 60)))
            params = SamplingParams(
                max_tokens=rng.choice((1, 2, 8, 60)),
                temperature=rng.choice((0.0, 0.8)),
                stop=rng.choice(((), (".",))),
                logprobs=rng.choice((0, 0, 3)),
                n=rng.choice((1, 1, 1, 3)) if paged else 1,
                ignore_eos=rng.random() < 0.5,
            )
            given.append(Submission(prompt, params))
        streams = self.engine.submit_many(given, more=rng.random() < 0.1)
        if rng.random() < 0.2:
            streams[0].cancel()

    def cancel(self) -> None:
        open_ones = [request for request, _ in self.engine.trace.open]
        some = self.rng.choices([*open_ones, 0, 10**9], k=3)
        self.engine.cancel(None if self.rng.random() < 0.1 else some)

    def flood(self) -> None:
        for _ in range(10):
            self.submit(20)
            for _ in range(50):
                self.cancel()

    def mistake(self) -> None:
        bad: Any = self.rng.choice(("", [], [-1], [10**9], "x " * 5_000, [{"role": "user"}], 5))
        with contextlib.suppress(InvalidInput):
            self.engine.submit(bad)
            raise Defect(f"{bad!r:.40} was taken")

    def begin(self) -> None:
        """Another configuration on the same weights, which needs all requests to be over."""
        self.engine.cancel()
        self.settle()
        mode, rng = self.rng.choice(MODES), self.rng
        shared = mode in ("continuous", "chunked") and rng.random() < 0.5
        size = rng.choice((1, 4, 16))
        self.trace = self.engine.begin(
            EngineConfig(mode, size, 256, rng.choice((4, 16)), POOL, prefix_caching=shared, longest_wait=0.01)
        )
        self.told, self.read = ToldBlocks(), 0

    def wait(self) -> None:
        time.sleep(self.rng.uniform(0, 0.05))

    def follow(self) -> None:
        """Every step that is new must tell of every block."""
        blocks = self.trace.header.blocks
        new = self.trace.since(self.read)
        self.read += len(new)
        for record in new:
            if isinstance(record, Step) and self.engine.config.paged:
                self.told.feed(record)
                self.told.check(record, blocks)

    def settle(self) -> None:
        """Waits until all is over: then no block has an owner."""
        deadline = time.monotonic() + PATIENCE
        while self.trace.open or self.told.owned:
            if not self.engine.alive or time.monotonic() > deadline:
                left = f"{len(self.trace.open)} requests and {len(self.told.owned)} blocks"
                raise Defect(f"{left} are left; the engine says {self.engine.error!r}")
            time.sleep(0.01)
            self.follow()

    def weigh(self) -> tuple[int, ...]:
        """Resident bytes of this process and of the engine's, when nothing runs."""
        self.engine.cancel()
        self.settle()
        gc.collect()
        return tuple(psutil.Process(pid).memory_info().rss for pid in (None, self.engine.pid))

    def count_handles(self) -> tuple[int, ...]:
        """Files and threads of this process, then of the engine's."""
        both = [psutil.Process(pid) for pid in (None, self.engine.pid)]
        return tuple(n for process in both for n in (process.num_fds(), process.num_threads()))

    def check(self) -> None:
        """That nothing has grown since it was weighed and counted, where it was."""
        now = self.weigh()
        if any(self.before) and max(map(sub, now, self.before)) > GROWTH:
            raise Defect(f"bytes here and in the engine: {self.before}, then {now}")
        handles = self.count_handles()
        if any(self.handles) and max(map(sub, handles, self.handles)) > 1:
            raise Defect(f"files and threads, here and there: {self.handles}, then {handles}")
