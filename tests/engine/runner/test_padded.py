"""Padded batches over a contiguous cache give transformers' tokens and logits in float32, however members come and go.

Most steps are made by hand here, as the scheduler makes them, so that every way of laying out the strips is met.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine import Engine
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig, ModelSpec
from engine.config.submission import Submission
from engine.models.loading import LoadedModel, load
from engine.runner.contiguous_cache import ContiguousCache
from engine.runner.launched_step import LaunchedStep
from engine.runner.padded import NextBatch, PaddedRunner
from engine.scheduler.plan import Row, StepPlan
from engine.scheduler.request import Branch, Request
from engine.trace.records import FinishReason, Kind
from tests.engine.core.test_exactness import Reference, assert_same
from tests.engine.tiny_models import VOCABULARY

NAMES = ("llama", "mistral", "gemma2", "gpt-oss", "gpt2", "qwen3 moe")
PROMPT_LENGTHS = (9, 3, 26, 1, 41, 14)
NEW_TOKENS = 30


def prompts() -> list[list[int]]:
    random = torch.Generator().manual_seed(11)
    return [torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in PROMPT_LENGTHS]


Expected = list[tuple[list[int], Tensor]]


@pytest.fixture(scope="module")
def models(tiny_folder: Callable[[str], Path]) -> Callable[[str], tuple[LoadedModel, Expected]]:
    """A tiny model, loaded once, and what transformers says to each prompt."""
    found: dict[str, tuple[LoadedModel, Expected]] = {}

    def of(name: str) -> tuple[LoadedModel, Expected]:
        if name not in found:
            folder = tiny_folder(name)
            plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
            reference = Reference(plain.eval())
            model = load(ModelSpec(str(folder), dtype="float32", device="cpu"))
            found[name] = model, [reference(prompt, NEW_TOKENS) for prompt in prompts()]
        return found[name]

    return of


class Steps:
    """Plays plans through a runner as the scheduler makes them, `depth` launched ahead, and checks every result."""

    def __init__(self, model: LoadedModel, expected: Expected, mode: str, depth: int, blocks: int, slots: int = 4):
        self.model, self.expected, self.depth = model, expected, depth
        self.runner = PaddedRunner(model, EngineConfig(mode=mode, max_running=slots, block_size=4), blocks)
        self.members: list[Branch] = []
        self.width = 0
        self.logits: dict[Branch, list[Tensor]] = {}
        self._in_flight: deque[LaunchedStep] = deque()
        self._free = list(range(slots))
        self._caught: list[Tensor] = []
        self._computed = 0

    def __enter__(self) -> Steps:
        module = self.model.module
        self._handles = [
            module.register_forward_hook(lambda _m, _a, out: self._caught.append(out.logits[:, -1].clone())),
            module.register_forward_pre_hook(self._count, with_kwargs=True),
        ]
        return self

    def __exit__(self, *_: Any) -> None:
        for handle in self._handles:
            handle.remove()

    def _count(self, module: Any, args: Any, kwargs: Any) -> None:
        self._computed += kwargs["input_ids"].numel()

    def new(self, prompt: int) -> Branch:
        """A branch that waits; its request's number is that of its prompt."""
        ids = prompts()[prompt]
        params = SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True)
        request = Request(prompt, len(ids), params, NEW_TOKENS, 0)
        branch = Branch(request, ids, output=None)  # type: ignore[arg-type]
        request.branches.append(branch)
        self.logits[branch] = []
        return branch

    def join(self, *numbers: int, width: int) -> list[Branch]:
        """One prefill step of these prompts; from now on strips hold `width` tokens."""
        joining = [self.new(number) for number in numbers]
        for branch in joining:
            branch.slot = self._free.pop(0)
        self.members += joining
        self.width = width
        longest = max(len(b.tokens) for b in joining)
        rows = [
            Row(b, b.slot, 0, len(b.tokens), Kind.PREFILL, True, False, padding=longest - len(b.tokens))
            for b in joining
        ]
        self._launch(rows, joining)
        return joining

    def decode(self, times: int = 1, held: Sequence[Branch] = ()) -> None:
        for _ in range(times):
            rows = [
                Row(b, b.slot, len(b.tokens) - 1, 1, Kind.HELD, False, False)
                if b in held
                else Row(b, b.slot, b.computed, 1, Kind.DECODE, True, b.in_flight > 0)
                for b in self.members
            ]
            self._launch(rows)

    def leave(self, *branches: Branch) -> None:
        for branch in branches:
            self.members.remove(branch)
            self._free.append(branch.slot)

    def recompute(self, number: int, times: int) -> Branch:
        branch = self.new(number)
        branch.slot = self._free.pop(0)
        for _ in range(times):
            count = len(branch.tokens) + branch.in_flight
            kind = Kind.DECODE if branch.generated else Kind.PREFILL
            self._launch([Row(branch, branch.slot, 0, count, kind, True, branch.in_flight > 0)], [branch])
        return branch

    def _launch(self, rows: list[Row], order: list[Branch] | None = None) -> None:
        for row in rows:
            row.branch.computed += 0 if row.kind is Kind.HELD else row.first + row.count - row.branch.computed
            row.branch.in_flight += row.samples
        self._computed = 0
        self._in_flight.append(self.runner.launch(StepPlan(tuple(rows), members=tuple(self.members), width=self.width)))
        assert self._computed == sum(row.count + row.padding for row in rows), "the model computes what the plan says"
        sampled = {row.branch for row in rows if row.samples}
        for branch, logits in zip(order or self.runner.cache.members, self._caught.pop(), strict=True):
            if branch in sampled:
                self.logits[branch].append(logits)
        if len(self._in_flight) > self.depth:
            self.commit()

    def commit(self) -> None:
        launched = self._in_flight.popleft()
        sampling = [row.branch for row in launched.plan.rows if row.samples]
        for branch, token in zip(sampling, launched.read().tokens, strict=True):
            branch.in_flight -= 1
            branch.tokens.append(token)

    def check(self, *branches: Branch, count: int | None = None) -> None:
        """All tokens and logits so far are transformers' own; of the first `count` tokens where that is given."""
        while self._in_flight:
            self.commit()
        for branch in branches:
            tokens, logits = self.expected[branch.request.id]
            generated = branch.tokens[branch.request.prompt_length :]
            assert len(generated) == len(self.logits[branch]) >= (count or 2)
            assert generated == tokens[: len(generated)]
            assert_same(torch.stack(self.logits[branch]), logits[: len(generated)])


@pytest.fixture(params=[0, 1], ids=["depth 0", "depth 1"])
def depth(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(params=NAMES)
def played(request: pytest.FixtureRequest, models: Any, depth: int) -> Iterator[Callable[..., Steps]]:
    model, expected = models(request.param)
    opened: list[Steps] = []

    def of(mode: str, blocks: int = 200, slots: int = 4) -> Steps:
        opened.append(Steps(model, expected, mode, depth, blocks, slots).__enter__())
        return opened[-1]

    yield of
    for steps in opened:
        steps.__exit__()


def test_without_a_cache_every_step_computes_the_whole_sequence_again(played: Callable[..., Steps]) -> None:
    steps = played("recompute", slots=1)
    steps.check(steps.recompute(2, 12), count=12)


def test_one_after_the_other_over_the_same_strip(played: Callable[..., Steps]) -> None:
    steps = played("sequential", blocks=18, slots=1)  # 72 tokens: the longest prompt and all its new ones
    for number in (4, 1, 2):
        (branch,) = steps.join(number, width=PROMPT_LENGTHS[number] + NEW_TOKENS)
        steps.decode(NEW_TOKENS - 1)
        steps.check(branch, count=NEW_TOKENS)
        steps.leave(branch)
        steps._free.sort()


def test_a_static_batch_is_right_although_finished_rows_are_held_in_it(played: Callable[..., Steps]) -> None:
    steps = played("static")
    for numbers in ((0, 1, 2, 3), (4, 5, 0)):
        branches = steps.join(*numbers, width=41 + NEW_TOKENS)
        steps.decode(6)
        while steps._in_flight:
            steps.commit()
        steps.decode(8, held=[branches[1]])
        while steps._in_flight:
            steps.commit()
        steps.decode(15, held=branches[1:3])
        steps.check(branches[0], *branches[3:], count=30)
        steps.check(branches[1], count=7)
        steps.check(branches[2], count=15)
        steps.leave(*branches)


def test_a_static_batch_never_moves_what_its_strips_hold(models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, expected = models("llama")
    with Steps(model, expected, "static", 0, blocks=4 * 18) as steps:  # not a token to spare
        steps.join(0, 1, 2, 4, width=72)
        monkeypatch.setattr(ContiguousCache, "_move", None)
        steps.decode(NEW_TOKENS - 1)
        steps.check(*steps.members, count=NEW_TOKENS)


def test_members_join_and_leave_at_every_step_while_the_width_grows(played: Callable[..., Steps]) -> None:
    steps = played("continuous-padded", blocks=60)
    (first,) = steps.join(1, width=33)  # a prompt of 3
    steps.decode(3)
    second, third = steps.join(0, 3, width=39)  # longer than all that are here: they move right
    steps.decode(2)
    steps.leave(first)  # out of the first strip: the last takes its place
    steps.decode(4)
    (fourth,) = steps.join(4, width=71)  # longer than a strip was wide
    steps.decode(5)
    (fifth,) = steps.join(2, width=56)
    steps.leave(third, fourth)
    steps.decode(10)
    (sixth,) = steps.join(5, width=56)
    steps.decode(6)
    steps.leave(second, fifth)
    steps.decode(3)
    steps.check(first, second, third, fourth, fifth, sixth)
    assert steps.runner.cache.members == [sixth]


def test_windows_move_left_when_the_columns_run_out(played: Callable[..., Steps]) -> None:
    steps = played("continuous-padded", blocks=28, slots=3)  # 112 tokens: two of 56 fit, or three of 37
    (first,) = steps.join(1, width=33)
    ends = []
    for number in (0, 3, 1, 0, 3, 1, 0):
        (joined,) = steps.join(number, width=39 if number == 0 else 33)
        for _ in range(12):
            steps.decode()
            ends.append(steps.runner.cache.end)
        steps.leave(first)
        steps.check(first, count=13)
        first = joined
    assert sum(b < a for a, b in pairwise(ends)) >= 2, "the windows moved left"
    steps.check(first)


def test_a_held_row_that_outgrows_its_strip_does_not_disturb_the_others(models: Any) -> None:
    model, expected = models("mistral")
    with Steps(model, expected, "continuous-padded", 0, blocks=16, slots=2) as steps:
        long, short = steps.join(0, 1, width=32)  # prompts of 9 and 3 tokens
        steps.decode(22)  # the longer one has 31 tokens
        steps.decode(6, held=[long])
        steps.check(short, count=29)


def test_a_held_row_never_asks_for_a_position_past_the_context(models: Any) -> None:
    model, expected = models("gpt2")
    with Steps(model, expected, "static", 0, blocks=400) as steps:
        one, other = steps.join(0, 1, width=60)
        steps.decode(2)
        one.tokens += [5] * (model.card.context - len(one.tokens) + 3)
        steps.decode(3, held=[one])
        steps.check(other, count=6)


def test_a_prompt_of_one_token_can_be_held_before_its_next_is_read() -> None:
    config = EngineConfig("static", 2, depth=1)
    greedy = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)
    with Engine(ModelSpec("demo"), config, threads=1) as engine:
        alone = engine.submit([7, 9, 11], greedy).result(timeout=60)
        engine.begin(config)
        plan = engine.scheduler.plan

        def plan_and_cancel(now: float) -> StepPlan | None:
            engine.cancel([0])  # done when this step, the prompts', is launched and not yet read
            return plan(now)

        engine.scheduler.plan = plan_and_cancel
        streams = engine.submit_many([Submission([7], greedy), Submission([7, 9, 11], greedy)])
        cancelled, other = (stream.result(timeout=60) for stream in streams)
    assert cancelled.finish_reason is FinishReason.CANCELLED
    assert other.token_ids == alone.token_ids


def test_a_prefill_that_fails_ends_nobody_else(models: Any) -> None:
    model, expected = models("llama")
    with Steps(model, expected, "continuous-padded", 0, blocks=60) as steps:
        (first,) = steps.join(1, width=40)
        steps.decode(4)

        def fail(*_: Any) -> None:
            raise MemoryError

        handle = model.module.register_forward_pre_hook(fail)
        with pytest.raises(MemoryError):
            steps.join(2, 0, width=56)
        handle.remove()
        steps.leave(*steps.members[1:])
        steps.decode(4)
        (late,) = steps.join(0, width=40)
        steps.decode(4)
        steps.check(first, late, count=5)


def test_what_a_leaver_left_in_its_strip_reaches_nobody(models: Any) -> None:
    model, expected = models("llama")
    with Steps(model, expected, "continuous-padded", 0, blocks=60) as steps:
        old, first = steps.join(0, 1, width=72)
        steps.decode(8)
        for keys, values in steps.runner.cache.layers:
            keys[0] = values[0] = torch.nan
            keys[2:] = values[2:] = torch.nan
        steps.leave(old)
        steps.decode(2)
        (short,) = steps.join(3, width=72)
        steps.decode(2)
        (long,) = steps.join(4, width=72)
        steps.decode(5)
        steps.check(first, short, long, count=6)


@pytest.mark.parametrize(
    ("name", "mode", "depth"),
    [  # of each mode both depths, at half of the models
        (name, mode, (place + number) % 2)
        for place, name in enumerate(NAMES)
        for number, mode in enumerate(("recompute", "sequential", "static", "dynamic", "continuous-padded"))
    ],
)
def test_the_engine_gives_the_tokens_and_logits_of_transformers_in_every_padded_mode(
    name: str, mode: str, depth: int, models: Any
) -> None:
    model, expected = models(name)
    computed: dict[int, dict[int, Tensor]] = {}  # a request's logits by position; a held row's come again

    def keep(module: Any, args: Any, kwargs: Any, out: Any) -> None:
        batch, scheduler = kwargs["batch"], engine.scheduler
        members = batch.cache.members if batch.cache is not None else scheduler.ledger.running
        rows = members if isinstance(batch, NextBatch) else members[-len(out.logits) :]
        for branch, position, logits in zip(rows, kwargs["position_ids"][:, -1].tolist(), out.logits[:, -1]):
            computed.setdefault(branch.request.id, {}).setdefault(position, logits.clone())

    memory = 44 * 4 * model.card.kv_token_bytes  # two of the widest fit
    with Engine(model, EngineConfig(mode="sequential"), threads=1) as engine:
        slots = 1 if mode in ("recompute", "sequential") else 4
        engine.begin(EngineConfig(mode=mode, max_running=slots, block_size=4, kv_memory=memory, depth=depth))
        computed.clear()
        handle = model.module.register_forward_hook(keep, with_kwargs=True)
        counts = [NEW_TOKENS - 4 * (i % 4) for i in range(len(prompts()))]
        params = [SamplingParams(max_tokens=n, temperature=0, ignore_eos=True) for n in counts]
        streams = [engine.submit(prompt, p) for prompt, p in zip(prompts(), params)]
        completions = [stream.result(timeout=60) for stream in streams]
        handle.remove()
        for prompt, completion, (tokens, logits), count in zip(prompts(), completions, expected, counts):
            assert list(completion.token_ids) == tokens[:count]
            found = computed[completion.request]
            last = len(prompt) - 1
            assert_same(torch.stack([found[last + i] for i in range(count)]), logits[:count])


def test_a_repetition_penalty_counts_the_same_tokens_in_every_mode(demo: Engine) -> None:
    params = SamplingParams(max_tokens=24, temperature=0, repetition_penalty=1.4, ignore_eos=True)
    said = set()
    for mode in ("continuous", "recompute", "sequential", "static", "continuous-padded"):
        for depth in (0, 1):
            demo.begin(EngineConfig(mode=mode, max_running=2, depth=depth))
            streams = [demo.submit(text, params) for text in ("Once upon a time", "The fox", "Lily and Lily and")]
            said.add(tuple(stream.result(timeout=60).token_ids for stream in streams))
    assert len(said) == 1
