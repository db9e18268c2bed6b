"""What kernels took beside the least that they could, worked out on paper."""

from dataclasses import replace

import numpy as np
import pytest

from engine import EngineConfig
from engine.trace import Header, Kernels, Kind, Roof, Step, kernel_times
from tests.engine.trace.hand_made import CARD, header, step

KERNELS = Kernels(
    names=("rms_norm", "o_proj", "store_kv", "decode_attention", "lm_head"),
    calls=(2, 1, 1, 1, 1),
    weights=(0, 100, 0, 0, 50),
    bytes=(0, 400, 0, 0, 200),
    drawn=(False, False, False, False, True),
)
SPENT = [1.0, 2.0, 3.0, 4.0, 5.0]


def made(roof: Roof | None = None, **fields: object) -> Header:
    """A model of one layer, one head of two values, 8 bytes of K and V a token; runs of 4 tokens."""
    card = replace(CARD, head_dim=2, kv_token_bytes=8, body_parameters=100, head_parameters=50, bytes_per_weight=4.0)
    roof = roof or Roof((1, 1_000_000), (100.0, 100.0), 1000.0)
    return replace(header(EngineConfig()), model=card, roof=roof, kernels=KERNELS, mixed_graphs=(4,), **fields)  # type: ignore[arg-type]


def steps() -> list[Step]:
    """A prompt of six tokens that draws one, and two rows that decode at position 6."""
    prompt = step(0, 0.0, 20.0, [(0, 0, 6, Kind.PREFILL)], {0: 1})
    decodes = step(1, 20.0, 40.0, [(0, 6, 1, Kind.DECODE), (1, 6, 1, Kind.DECODE)], {0: 1, 1: 1})
    return [replace(each, kernel=np.array(SPENT, np.float32)) for each in (prompt, decodes)]


def test_the_least_is_the_roofs() -> None:
    prompt, decodes = (kernel_times(made(), [each]) for each in steps())
    assert prompt is not None
    assert decodes is not None
    assert prompt.seconds.tolist() == SPENT
    # Of the prompt two runs read the body's weights; one token is drawn. A token at position p sees p + 1.
    assert prompt.bytes.tolist() == [0, 2 * 400, 6 * 8, 6 * 8, 2 * 200]
    assert prompt.operations.tolist() == [0, 2 * 100 * 6, 0, 4 * 2 * 21, 2 * 50 * 1]
    assert decodes.bytes.tolist() == [0, 400, 2 * 8, 2 * 7 * 8, 200]
    assert decodes.operations.tolist() == [0, 2 * 100 * 2, 0, 4 * 2 * 14, 2 * 50 * 2]
    assert decodes.memory == pytest.approx(decodes.bytes / 100)
    assert decodes.compute == pytest.approx(decodes.operations / 1000)
    assert decodes.least.tolist() == pytest.approx([0, 4.0, 0.16, 1.12, 2.0])


def test_steps_are_added_up_and_those_that_told_nothing_left_out() -> None:
    both = kernel_times(made(), [*steps(), step(2, 40.0, 41.0, [(0, 7, 1, Kind.DECODE)], {0: 1})])
    assert both is not None
    assert both.seconds.tolist() == [2 * seconds for seconds in SPENT]
    assert both.bytes.tolist() == [0, 3 * 400, 64, 48 + 112, 3 * 200]


def test_what_nobody_told_or_counts_is_not_made_up() -> None:
    plain = [replace(each, kernel=np.zeros(0, np.float32)) for each in steps()]
    assert kernel_times(made(), plain) is None
    assert kernel_times(replace(made(), kernels=None), steps()) is None
    split = kernel_times(made(rank_devices=("cpu", "cpu"), rank_weights=(1, 1)), steps())
    assert split is not None
    assert split.seconds.sum() == 2 * sum(SPENT)
    assert not split.least.any()
    unmeasured = kernel_times(replace(made(), roof=None), steps())
    assert unmeasured is not None
    assert not unmeasured.least.any()
    assert unmeasured.operations.any()
