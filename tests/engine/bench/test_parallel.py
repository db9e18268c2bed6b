"""The table of one device and two ranks, which share rows or do not."""

from engine.bench.parallel.run import measure
from engine.bench.subject import Shape


def test_all_sides_say_the_same_and_tell_where_the_time_went() -> None:
    tiny = Shape(hidden=64, layers=2, heads=4, kv_heads=2, intermediate=96, vocabulary=512)
    measured = measure(1, 1, "float32", tiny)
    one, two, sharing, staged = measured.sides
    assert measured.same
    assert (one.ranks, two.ranks, two.meets) == (1, 2, "shared memory")
    assert one.sent == one.communicating == one.machinery == 0
    assert two.sent == 16 * (2 * 2 * 64 + 256) * 4
    assert 0 < two.communicating < two.forward < two.step
    assert 0 < two.waiting < two.forward
    assert 0 < two.machinery < two.step
    assert sharing.sent == two.sent + 8 * 64 * 4, "its rows of what the last norm gives"
    assert staged.ranks == 2
    assert two.residuals == one.residuals == 2 * sharing.residuals
    assert 0 < two.activations < one.activations
    assert 0 < sharing.activations < one.activations
    assert 0 < staged.communicating < staged.forward
    assert staged.waiting > 0, "bubbles are"
    assert staged.sent == 16 * 512 * 4, "the last one's logits"
    assert "| one device | tensor | tensor and sequence | pipeline |" in measured.text()
