"""The bench of quantizations, over a tiny model."""

import json

import pytest
import transformers

from engine.bench.cpu import quantized
from engine.bench.subject import Experts, Shape

TINY = Shape(hidden=128, layers=2, heads=4, kv_heads=2, intermediate=256, vocabulary=512, context=256)


@pytest.fixture(scope="module")
def report() -> quantized.QuantizedReport:
    return quantized.run(("nf4", "awq", "int8-plain"), 2, 1, shape=TINY, batches=(1, 3), new_tokens=6, progress=False)


def test_every_side_decodes_and_is_compared_with_dense_bfloat16_round_by_round(
    report: quantized.QuantizedReport,
) -> None:
    assert [side.name for side in report.sides] == ["none, float32", "none, bfloat16", "nf4", "awq", "int8-plain"]
    for side in report.sides:
        assert not side.absent
        assert side.load_seconds > 0
        assert [d.batch for d in side.decodes] == [1, 3]
        for decode in side.decodes:
            assert len(decode.seconds) == 2
            assert decode.rate > 0
            assert decode.bound > 0
    dense, halved = report.sides[0], report.sides[1]
    assert all(report.times(decode) == 1 for decode in halved.decodes)
    assert dense.weight_bytes == 2 * halved.weight_bytes
    assert report.sides[2].weight_bytes < halved.weight_bytes


def test_a_step_reads_the_weights_as_they_are_held_and_the_context_of_every_row(
    report: quantized.QuantizedReport,
) -> None:
    layer = 128 * 128 * 2 + 128 * 64 * 2 + 3 * 128 * 256
    kv = 2 * 2 * 2 * 32  # K and V, layers, heads, head_dim
    context = quantized.PROMPT + 3
    for side, item in zip(report.sides[:2], (4, 2)):
        assert [d.read for d in side.decodes] == [
            (2 * layer + 128 * 512) * item + batch * context * kv * item for batch in (1, 3)
        ]


def test_a_mixture_is_measured_too_whose_steps_read_the_experts_that_are_asked() -> None:
    experts = Experts(8, 2, 128)
    found = quantized.run(
        ("nf4", "awq"), 1, 1, shape=TINY, experts=experts, batches=(1, 3), new_tokens=6, progress=False
    )
    assert [side.name for side in found.sides] == ["none, float32", "none, bfloat16", "nf4", "awq"]
    _, halved, *four = found.sides
    assert all(side.weight_bytes < 0.5 * halved.weight_bytes for side in four)
    layer, one = 128 * 128 * 2 + 128 * 64 * 2 + 128 * 8, 3 * 128 * 128
    whole = 2 * (2 * layer + 2 * 8 * one + 128 * 512)
    kv = 2 * 2 * 2 * 32 * 2 * (quantized.PROMPT + 3)
    alone, several = halved.decodes
    assert alone.read == whole - 2 * 2 * 6 * one + kv, "one row asks two experts of eight"
    assert alone.read < several.read < whole + 3 * kv
    assert "mixture with 8 experts a layer, 2 a token" in found.text()


def test_the_report_is_a_table_for_people_and_numbers_for_programs(report: quantized.QuantizedReport) -> None:
    values = json.loads(report.json())
    assert values["sides"][2]["decodes"][0]["times_dense_bfloat16"] > 0
    assert values["sides"][2]["decodes"][0]["tokens_per_second"] == report.sides[2].decodes[0].rate
    text = report.text()
    assert text.count("nf4") == 2
    assert "Decoding, batch 3" in text
    assert all(len(line) < 140 for line in text.splitlines()[4:])


def test_the_bars_of_transformers_are_as_they_were(report: quantized.QuantizedReport) -> None:
    assert transformers.utils.logging.is_progress_bar_enabled()
