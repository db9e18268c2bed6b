"""Which key and value heads can be repeated how often, and what of a checkpoint is read more than once."""

from typing import Any

import pytest

from engine.checkpoints.kv_heads import RepeatedHeads, repeated_heads
from engine.config import InvalidInput, ModelSpec, Parallel

CONFIG = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2}
HELD = RepeatedHeads(heads=8, own=2, held=4, head_dim=8)


@pytest.mark.parametrize(("asked", "held"), [("auto", 0), (2, 0), (4, 4), (8, 8), ("all", 8)])
def test_heads_are_held_as_often_as_asked_for(asked: int | str, held: int) -> None:
    found = repeated_heads(CONFIG, asked)
    assert (found.held if found is not None else 0) == held


@pytest.mark.parametrize("asked", [1, 3, 6, 16])
def test_a_number_that_does_not_divide_is_refused_with_those_that_do(asked: int) -> None:
    with pytest.raises(InvalidInput, match=f"kv_heads={asked}: .*2 for 8 query heads.*one of 2, 4, 8, all or auto"):
        repeated_heads(CONFIG, asked)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"multi_query": True}, "in one matrix"),
        ({"kv_lora_rank": 4}, "latent"),
        ({"num_global_key_value_heads": 1}, "two kinds"),
        ({"auto_map": {"AutoModel": "its.own"}}, "its own code"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantized"),
        ({"num_key_value_heads": None}, "does not say"),
        ({"num_key_value_heads": 0}, "does not say"),
        ({"num_attention_heads": "8"}, "does not say"),
        ({"hidden_size": None}, "does not say"),
    ],
)
def test_what_cannot_be_repeated_is_refused_with_the_reason(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=f"kv_heads=4: .*{words}.*use auto"):
        repeated_heads(CONFIG | more, 4)


def test_a_model_whose_heads_share_nothing_is_as_it_is() -> None:
    alone = CONFIG | {"num_key_value_heads": 8}
    assert repeated_heads(alone, "all") is None
    assert repeated_heads(CONFIG | {"num_key_value_heads": None}, "all") is None


@pytest.mark.parametrize(
    ("name", "shape", "ranges"),
    [
        ("model.layers.0.self_attn.k_proj.weight", (16, 64), ((0, 8), (0, 8), (8, 16), (8, 16))),
        ("model.layers.0.self_attn.v_proj.bias", (16,), ((0, 8), (0, 8), (8, 16), (8, 16))),
        # queries once, then keys, then values
        (
            "model.layers.0.self_attn.qkv_proj.weight",
            (96, 64),
            ((0, 64), (64, 72), (64, 72), (72, 80), (72, 80), (80, 88), (80, 88), (88, 96), (88, 96)),
        ),
        ("model.layers.0.self_attn.k_norm.weight", (16,), ((0, 8), (0, 8), (8, 16), (8, 16))),  # over all heads
        ("model.layers.0.self_attn.k_norm.weight", (2, 8), ((0, 1), (0, 1), (1, 2), (1, 2))),  # a head's own
    ],
)
def test_rows_of_keys_and_values_are_read_head_by_head(
    name: str, shape: tuple[int, ...], ranges: tuple[tuple[int, int], ...]
) -> None:
    part = HELD.part(name, shape)
    assert part is not None
    assert (part.axis, part.ranges) == (0, ranges)
    assert HELD.headers({name: (shape, "F32")})[name][0] == tuple(part.shape_of(shape))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.layers.0.self_attn.q_proj.weight", (64, 64)),
        ("model.layers.0.self_attn.o_proj.weight", (64, 64)),
        ("model.layers.0.self_attn.k_norm.weight", (8,)),
        ("model.layers.0.self_attn.sinks", (8,)),
        ("model.embed_tokens.weight", (100, 64)),
    ],
)
def test_all_else_is_read_once(name: str, shape: tuple[int, ...]) -> None:
    assert HELD.part(name, shape) is None
    assert HELD.headers({name: (shape, "F32")}) == {name: (shape, "F32")}


def test_a_config_says_how_many_are_held_where_it_said_how_many_there_are() -> None:
    assert HELD.config(CONFIG)["num_key_value_heads"] == 4
    nested = HELD.config({"model_type": "some", "text_config": CONFIG})
    assert nested["text_config"] == CONFIG | {"num_key_value_heads": 4}
    assert "num_key_value_heads" not in nested


@pytest.mark.parametrize("given", [0, -1, 2.5, "some", True])
def test_a_spec_takes_a_number_or_a_word(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"kv_heads=.*auto, all or a number of heads"):
        ModelSpec(kv_heads=given)


def test_a_model_that_is_split_has_its_own_heads() -> None:
    with pytest.raises(InvalidInput, match=r"kv_heads='all': tensor_parallel=2 .*one device"):
        ModelSpec(parallel=Parallel(2), kv_heads="all")
