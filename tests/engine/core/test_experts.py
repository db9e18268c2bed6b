"""What a step tells of a mixture's experts is what transformers' own routers decide, in every mode."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine import Engine, EngineConfig, ModelSpec, SamplingParams, measure
from engine.config import MODES, PAGED_MODES
from engine.models.routing import Routing, holds_experts
from engine.trace import Array, Step, WorkCounter
from engine.trace.work import count_work
from tests.engine.core.test_exactness import prompts

NEW_TOKENS = 6
GREEDY = SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True)
MIXTURES = {"mixtral": MODES, "qwen3 moe": ("static", "chunked"), "gpt-oss": ("continuous",)}  # in which modes


class Reference:
    """Of a text, `[positions, layers, experts]`: 1 where a position's token is sent."""

    def __init__(self, module: PreTrainedModel, experts: int) -> None:
        self.module, self.experts, self._heard = module, experts, list[torch.Tensor]()
        for path, part in module.named_modules():
            if holds_experts(path, part):
                part.register_forward_pre_hook(self._hear, with_kwargs=True)

    def _hear(self, _: nn.Module, args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor]) -> None:
        self._heard.append(args[1] if len(args) > 1 else kwargs["router_indices"])

    @torch.inference_mode()
    def __call__(self, ids: list[int]) -> Array:
        self._heard.clear()
        self.module(input_ids=torch.tensor([ids]), use_cache=False)
        each = [nn.functional.one_hot(sent, self.experts).sum(1) for sent in self._heard]
        return torch.stack(each, 1).numpy()


@contextmanager
def answers(folder: Path) -> Iterator[tuple[Engine, Callable[[EngineConfig], dict[int, list[int]]]]]:
    """An engine, and what each request is with its answer in some mode."""
    with Engine(ModelSpec(str(folder), dtype="float32", device="cpu"), threads=1) as engine:

        def say(config: EngineConfig) -> dict[int, list[int]]:
            engine.begin(config)
            streams = [engine.submit(prompt, GREEDY) for prompt in prompts() * 2]
            said = [list(stream.result(timeout=60).token_ids) for stream in streams]
            return {stream.request: [*prompt, *text] for stream, prompt, text in zip(streams, prompts() * 2, said)}

        yield engine, say


def told(engine: Engine) -> Iterator[tuple[Step, Array]]:
    """Each step that computed anything, and what it sent `[layers, experts]`."""
    card = engine.trace.header.model
    for step in engine.trace.steps:
        if (own := step.own).rows and own.count.any():
            yield own, own.expert.reshape(len(card.expert_layers), card.experts)


@pytest.mark.parametrize("name", MIXTURES)
def test_every_mode_tells_where_the_routers_send_each_token(name: str, tiny_folder: Callable[[str], Path]) -> None:
    module = AutoModelForCausalLM.from_pretrained(tiny_folder(name), dtype=torch.float32).eval()
    with answers(tiny_folder(name)) as (engine, say):
        reference = Reference(module, engine.card.experts)
        for mode in MIXTURES[name]:
            config = EngineConfig(mode, 4, 32, block_size=4, prefix_caching=mode in PAGED_MODES, longest_wait=0.01)
            routes = {request: reference(ids) for request, ids in say(config).items()}
            seen = 0
            for step, sent in told(engine):
                expected = sum(
                    routes[request][first : first + count].sum(0)
                    for request, first, count in zip(*map(Array.tolist, (step.request, step.first, step.count)))
                )
                tokens = int(step.count.sum() + step.padding.sum())
                assert (sent.sum(1) == engine.card.active_experts * tokens).all(), (mode, step.step)
                if step.padding.any() or (step.kind == 2).any():  # pads and held rows are sent somewhere too
                    assert (sent.sum(1) >= np.asarray(expected).sum(1)).all()
                    continue
                assert (sent == expected).all(), (mode, step.step)
                seen += 1
            assert seen > 4, mode
            activated = measure(engine.trace).activated_experts
            assert activated is not None
            assert 0 < activated <= 1
        engine.begin(EngineConfig())


def test_a_step_reads_the_experts_that_it_told_and_no_others(tiny_folder: Callable[[str], Path]) -> None:
    with answers(tiny_folder("mixtral")) as (engine, say):
        say(EngineConfig(max_running=2))
        header, steps = engine.trace.header, [step for step in engine.trace.steps if step.rows]
        card, work = header.model, WorkCounter(header).count(steps)
    shares = [np.count_nonzero(step.expert) / len(step.expert) for step in steps]
    assert len(set(shares)) > 2
    told_nothing = [Step(**{f: getattr(s, f) for f in Step.__slots__} | {"expert": s.expert[:0]}) for s in steps]
    by_chance = count_work(header, told_nothing)
    expected = 1 - (1 - card.active_experts / card.experts) ** work.tokens
    difference = (np.array(shares) - expected) * card.expert_parameters * card.bytes_per_weight
    np.testing.assert_allclose(work.matmul_bytes - by_chance.matmul_bytes, difference, atol=1e-3)
    assert (work.matmul_operations == by_chance.matmul_operations).all()


def test_what_fills_a_captured_step_up_is_not_counted(tiny_folder: Callable[[str], Path]) -> None:
    module = AutoModelForCausalLM.from_pretrained(tiny_folder("mixtral"), dtype=torch.float32).eval()
    routing = Routing.of(module, torch.device("cpu"))
    assert routing is not None
    assert routing.layers == (0, 1)
    ids = torch.tensor([[5, 9, 2, 7, 0, 0, 0, 0]])
    counts = {}
    routing.room(8)
    with torch.inference_mode():
        for tokens in (4, None, 8):
            routing.begin(tokens)
            module(input_ids=ids)
            counts[tokens] = routing.counts.clone()
        routing.begin()
        module(input_ids=ids[:, :4])
    assert (counts[4] == routing.counts).all()
    assert (counts[None] == counts[8]).all()
    assert counts[None].sum(1).tolist() == [16, 16]


def test_a_model_without_experts_tells_of_none(tiny_folder: Callable[[str], Path]) -> None:
    with answers(tiny_folder("llama")) as (engine, say):
        say(EngineConfig(max_running=4))
        assert engine.card.expert_layers == ()
        assert not any(len(step.expert) for step in engine.trace.steps)
        assert measure(engine.trace).activated_experts is None
