"""The table of one device and two ranks."""

from engine.bench.parallel.run import measure
from engine.bench.subject import Shape


def test_both_sides_say_the_same_and_tell_where_the_time_went() -> None:
    tiny = Shape(hidden=64, layers=2, heads=4, kv_heads=2, intermediate=96, vocabulary=512)
    measured = measure(1, 1, "float32", tiny)
    one, two = measured.sides
    assert measured.same
    assert (one.ranks, two.ranks, two.meets) == (1, 2, "shared memory")
    assert one.sent == one.communicating == one.machinery == 0
    assert two.sent == 16 * (2 * 2 * 64 + 256) * 4
    assert 0 < two.communicating + two.waiting < two.forward < two.step
    assert 0 < two.machinery < two.step
    assert "tensor parallel, 2 ranks" in measured.text()
