"""The weights that the card counts are those that the model multiplies tokens with: told by counting a real forward."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from engine import Engine, EngineConfig, ModelSpec, load_workload
from engine.models import attention
from engine.models.card import serve_with_paged_attention
from engine.models.loading import load
from engine.models.packed_linear import pack_linears
from engine.models.weight_count import count_weights, widest_matrix
from engine.trace.records import Step
from tests.engine.tiny_models import TINY_MODELS, VOCABULARY, make_tiny_model


class NoAttention:
    """A batch whose attention costs nothing."""

    def attend(self, layer, query, key, value, options):  # type: ignore[no-untyped-def]
        return torch.zeros_like(query).transpose(1, 2).contiguous()


class Nothing:
    def attend(self, *arguments: object) -> None:
        return None


@pytest.mark.parametrize("name", TINY_MODELS)
def test_a_forward_takes_two_operations_for_every_weight_that_was_counted(name: str) -> None:
    tokens, wanted = 48, 5
    module = make_tiny_model(TINY_MODELS[name])
    serve_with_paged_attention(module, torch.device("cpu"))
    module.config._experts_implementation = "eager"  # torch does not count the grouped product
    count = count_weights(module)
    ids = torch.arange(tokens)[None]
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        module(
            input_ids=ids, position_ids=ids, use_cache=False, logits_to_keep=torch.arange(wanted), batch=NoAttention()
        )
    active = count.body_parameters - count.expert_parameters
    if count.experts:
        active += count.expert_parameters * count.active_experts // count.experts
    expected = 2 * active * tokens + 2 * count.head_parameters * wanted
    assert counter.get_total_flops() == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize("name", ["mixtral", "qwen3 moe", "gpt-oss"])
def test_experts_are_told_apart(name: str) -> None:
    count = count_weights(make_tiny_model(TINY_MODELS[name]))
    assert (count.experts, count.active_experts) == (4, 2)
    assert 0.4 * count.body_parameters < count.expert_parameters < count.body_parameters


def test_a_dense_model_has_none() -> None:
    count = count_weights(make_tiny_model(TINY_MODELS["llama"]))
    assert (count.expert_parameters, count.experts, count.active_experts) == (0, 0, 0)
    layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128
    assert (count.body_parameters, count.head_parameters, count.bytes_per_weight) == (2 * layer, 64 * 3072, 4)


def test_a_tied_head_is_counted_once_and_as_the_head() -> None:
    module = make_tiny_model(TINY_MODELS["llama"])
    plain = count_weights(module)
    module.lm_head.weight = module.model.embed_tokens.weight
    assert count_weights(module) == replace(plain, parameters=plain.parameters - 64 * VOCABULARY)
    assert count_weights(module).parameters == module.num_parameters()


def test_the_bytes_of_a_weight_are_those_it_is_held_in() -> None:
    module = make_tiny_model(TINY_MODELS["gpt2"])
    assert count_weights(module).bytes_per_weight == 4
    assert count_weights(module.to(torch.bfloat16)).bytes_per_weight == 2


def test_the_largest_layer_is_found_before_and_after_packing() -> None:
    module = make_tiny_model(TINY_MODELS["llama"])
    assert sorted(widest_matrix(module)) == [64, 128]
    pack_linears(module)
    assert sorted(widest_matrix(module)) == [64, 128]


@pytest.mark.parametrize(
    ("name", "windows"), [("llama", (0, 0)), ("mistral", (8, 8)), ("gemma2", (8, 0)), ("gemma3", (8, 0, 8))]
)
def test_the_card_has_each_layers_window(tiny_folder: Callable[[str], Path], name: str, windows: tuple[int]) -> None:
    card = load(ModelSpec(str(tiny_folder(name)))).card
    assert card.windows == windows
    assert card.body_parameters > 0
    assert card.head_parameters == 64 * 3072


def test_attention_is_timed_within_the_forward(demo: Engine) -> None:
    for mode in ("continuous", "static", "recompute"):
        trace = demo.run(load_workload("mixed-lengths", count=4), EngineConfig(mode=mode, max_running=4)).result()
        steps = [record for record in trace.records if isinstance(record, Step) and record.rows]
        assert all(0 < step.attention < step.seconds["forward"] for step in steps)


def test_timing_attention_costs_next_to_nothing() -> None:
    """Two looks at the clock a layer, some tens of nanoseconds each: of a step that takes a millisecond."""
    layer, query = SimpleNamespace(layer_idx=0), torch.zeros(1, 1, 1, 4)

    def seconds(timer: attention.Timer | None) -> float:
        best = float("inf")
        for _ in range(20):
            begun = time.perf_counter()
            for _ in range(200):
                attention.attend(layer, query, query, query, batch=Nothing(), timer=timer)  # type: ignore[arg-type]
            best = min(best, time.perf_counter() - begun)
        return best / 200

    assert seconds(attention.Timer()) - seconds(None) < 5e-6
