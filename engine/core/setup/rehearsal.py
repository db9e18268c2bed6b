"""Steps off the record, before a trace begins: to warm up, and to find how many threads are fastest on a CPU."""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig
from engine.decoding.detokenizer_factory import DetokenizerFactory
from engine.decoding.output import Output
from engine.scheduler.block_pool import BlockPool
from engine.scheduler.request import Branch, Emission, Request
from engine.scheduler.scheduler import Scheduler

PROMPT = 8
QUICK = 0.1  # seconds; a step that takes longer gains from every core, and is not worth repeating
ROWS, STEPS = 16, 5
PASSES, MOST_PASSES = 2, 6
WORTH, CLOSE = 1.2, 1.1
GREEDY = SamplingParams(temperature=0, ignore_eos=True)
LIMITED = SamplingParams(temperature=1.0, top_k=5, top_p=0.9, ignore_eos=True)


class ThreadChoice(NamedTuple):
    """How many threads, and why, in words."""

    threads: int
    why: str


def worthwhile(seconds: dict[int, float]) -> tuple[int, bool]:
    """From the seconds of a step by number of threads, the fewest first: the number that gains enough by each step up,
    and whether another measurement could say otherwise."""
    (chosen, *more), close = seconds, False
    for n in more:
        gain = seconds[chosen] / max(seconds[n], 1e-9)
        close = close or WORTH / CLOSE < gain < WORTH * CLOSE
        if gain > WORTH:
            chosen = n
    return chosen, close


class Rehearsal:
    """Plays small greedy requests through a runner whose pool has `blocks` blocks and which nobody else uses yet."""

    def __init__(self, runner: Any, config: EngineConfig, blocks: int, context: int, detokenizers: DetokenizerFactory):
        if config.disaggregated:  # it plays prompts here too
            config = replace(config, mode="continuous")
        self._runner, self._config, self._blocks = runner, config, blocks
        self._context = context or 1 << 30
        self._detokenizers = detokenizers

    def play(self, requests: int, tokens: int, params: SamplingParams = GREEDY) -> list[float]:
        """Seconds of each step in which all the requests decode; fewer requests and tokens where they do not fit."""
        requests, room = self._fit(requests)
        tokens = min(tokens, room - 1)
        if tokens < 1:
            return []
        scheduler = self._scheduler(requests, max(1, min(PROMPT, room - tokens)), tokens, params)
        seconds = []
        while (plan := scheduler.plan()) is not None:
            begun = time.perf_counter()
            scheduler.commit(plan, [Emission(token) for token in self._runner.launch(plan).read().tokens])
            if len(plan.rows) == requests and plan.rows[0].count == 1:
                seconds.append(time.perf_counter() - begun)
        return seconds

    def fill(self, tokens: int, most: int | None = None) -> tuple[int, int]:
        """How many prompts of which length make a step of that many tokens, or of as many as fit: one in every slot, or
        in `most` of them. (0, 0) where none fits."""
        rows, room = self._fit(min(tokens, most or self._config.slots))
        length = min(tokens // rows, room - 1)
        return (rows, length) if length > 0 else (0, 0)

    def prefill(self, requests: int, length: int) -> None:
        """The one step that computes so many prompts of that length, which must fit."""
        scheduler = self._scheduler(requests, length, 1)
        plan = scheduler.plan()
        assert plan is not None
        self._runner.launch(plan).read()

    def _fit(self, requests: int) -> tuple[int, int]:
        """As many of the requests as find a slot and a block, and the tokens there are room for in each."""
        requests = min(requests, self._config.slots, self._blocks)
        return requests, min(self._blocks // requests * self._config.block_size, self._context)

    def meet_all_kernels(self, glance: Callable[[], None]) -> None:
        """Plays what makes the GPU path compile every kernel that a run could ask for, which would halt it: tokens
        drawn with limits, steps of one row and of all that may run, and prompts of lengths between which tiles of
        packed weights change (16, 32, 64 and 128 tokens). Two censuses in the tests hold that none is left out, of
        large models' shapes and of whole runs. `glance` is called before each, which may compile for seconds, and may
        raise.
        """
        glance()
        self.play(2, 2)
        glance()
        self.play(self._config.max_running, 2)
        glance()
        self.play(1, 2, LIMITED)
        _, room = self._fit(1)
        for length in (PROMPT + 1, 24, 48, 96, self._config.token_budget):
            glance()
            if room > 1:
                self.prefill(1, min(length, room - 1))

    def _scheduler(self, requests: int, length: int, tokens: int, params: SamplingParams = GREEDY) -> Scheduler:
        pool = BlockPool(self._blocks, self._config.block_size)
        params = params.with_(max_tokens=tokens)
        scheduler = Scheduler(self._config, pool)
        for i in range(requests):
            request = Request(i, length, params, tokens, 0)
            output = Output(self._detokenizers(), params, frozenset(), tokens)
            request.branches.append(Branch(request, [0] * length, output))
            scheduler.add(request)
        return scheduler

    def fastest_threads(self) -> ThreadChoice:
        """The number of torch threads, up to its present one, that a decode step gains by; it is set then.

        A small model is fastest on one: its layers take less time than their threads take to meet. More threads must
        gain `WORTH`, since whatever else runs on one of their cores makes all of them wait: on two cores, one busy
        process beside two threads cost two thirds of the throughput, and nothing beside one. All counts are measured
        in turn, the fastest of their passes counts, and a call within `CLOSE` of the border is measured again.
        """
        most = torch.get_num_threads()
        if most == 1:
            return ThreadChoice(1, "torch may use no more")
        counts = [n for n in (1 << i for i in range(most.bit_length())) if n < most] + [most]
        best = dict.fromkeys(counts, float("inf"))
        self.play(ROWS, STEPS)
        for turn in range(MOST_PASSES):
            for n in counts:
                torch.set_num_threads(n)
                steps = self.play(ROWS, STEPS)
                best[n] = min(best[n], statistics.median(steps or [0.0]))
                if not steps or min(steps) > QUICK:
                    torch.set_num_threads(most)
                    return ThreadChoice(most, "a step of this model is long enough for all")
            chosen, close = worthwhile(best)
            if turn + 1 >= PASSES and not close:
                break
        torch.set_num_threads(chosen)
        times = ", ".join(f"{1e3 * best[n]:.1f} ms on {n}" for n in counts)
        return ThreadChoice(chosen, f"a decode step of {ROWS} rows took {times}; more must gain {WORTH - 1:.0%}")
