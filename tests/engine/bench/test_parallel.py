"""The table of one device and two ranks, which share rows or do not."""

from dataclasses import replace

from engine.bench.parallel.run import measure
from engine.bench.subject import Shape


def test_all_sides_say_the_same_and_tell_where_the_time_went() -> None:
    tiny = Shape(hidden=128, layers=2, heads=4, kv_heads=2, intermediate=128, vocabulary=512)
    measured = measure(1, 1, "float32", tiny, "nf4")
    one, two, sharing, staged = measured.sides
    assert measured.same
    assert (one.ranks, two.ranks, two.meets) == (1, 2, "shared memory")
    assert one.sent == one.communicating == one.machinery == 0
    assert two.sent == 16 * (2 * 2 * 128 + 256) * 4
    assert 0 < two.communicating < two.forward < two.step
    assert 0 < two.waiting < two.forward
    assert 0 < two.machinery < two.step
    assert sharing.sent == two.sent + 8 * 128 * 4, "its rows of what the last norm gives"
    assert staged.ranks == 2
    assert two.residuals == one.residuals == 2 * sharing.residuals
    assert 0 < two.activations < one.activations
    assert 0 < sharing.activations < one.activations
    assert 0 < staged.communicating < staged.forward
    assert staged.waiting > 0, "bubbles are"
    assert staged.sent == 16 * 512 * 4, "the last one's logits"
    assert one.weights / 2 < two.weights < one.weights, "the embedding is whole"
    assert staged.weights < one.weights
    assert "nf4, float32, 16 rows" in measured.text()
    assert "tokens: the same" in measured.text()
    own = replace(measured, quantization="int8", same=None)
    assert "tokens: not compared" in own.text()
    assert replace(own, sides=(one, replace(two, machinery=0.0, waiting=0.0), staged)).reached
    assert "| one device | tensor | tensor and sequence | pipeline |" in measured.text()
