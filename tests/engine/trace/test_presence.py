"""When requests are there, and what counts only then, against numbers worked by hand."""

import pytest

from engine import EngineConfig
from engine.trace import KvShares, Presence, Record, busiest, measure
from engine.trace.trace import Trace
from tests.engine.trace.hand_made import D, H, P, header, step, submitted, two_sends


def presence(records: list[Record]) -> Presence:
    found = Presence()
    for record in records:
        found.feed(record)
    return found


def test_requests_are_there_from_a_submit_until_the_last_sample_is_over() -> None:
    found = presence(two_sends())
    assert found.total == 5.0
    assert found.seconds(0.0, 100.0) == 5.0
    assert found.seconds(2.5, 64.0) == 1.5
    assert found.seconds(10.0, 60.0) == 0.0
    assert [times.tolist() for times in found.gaps(1.0)] == [[3.0], [63.0]]
    assert not len(found.gaps(61.0)[0]), "idle time that is shorter than asked for"
    first, second = (1.0, 3.0), (63.0, 66.0)
    assert [found.span(moment) for moment in (0.0, 2.9, 3.0, 64.0, 99.0)] == [first, first, second, second, second]
    assert presence([]).span(7.0) == (7.0, 7.0)


def test_a_request_that_waits_is_there_and_one_that_goes_on_ends_with_the_latest_record() -> None:
    waits = presence([submitted(1.0, 0, 2), submitted(4.0, 1, 2)])
    assert waits.total == 3.0
    assert waits.seconds(2.0, 9.0) == 2.0
    assert presence([]).seconds(0.0, 1.0) == 0.0
    stepped = presence([step(0, 1.0, 2.0, [(0, 0, 2, P)]), step(1, 5.0, 6.0, [(0, 2, 1, D)])])
    assert stepped.total == 2.0, "whoever they were for"


def test_idle_time_does_not_count_in_what_the_kv_memory_held() -> None:
    # While requests were there: 1 s of the first's, then 2 s of it until the third step was over, and 1 s of FULL.
    kv = measure(Trace(two_sends())).kv
    assert kv == KvShares(pytest.approx((0.25 * 3 + 1) / 4), pytest.approx(0.75 * 3 / 4))  # type: ignore[arg-type]


def test_the_busiest_moment_is_where_most_is_computed_and_then_where_the_cache_is_fullest() -> None:
    one, two, held = [(0, 0, 2, P)], [(0, 0, 2, D), (1, 0, 2, D)], [(0, 0, 2, H), (1, 0, 2, D)]
    rows = [(one, 9), (two, 4), (two, 7), (two, 7), (held, 9)]
    steps = [step(i, 10.0 + i, 11.0 + i, told, kv=(kv, 0, 0, 0)) for i, (told, kv) in enumerate(rows)]
    trace = Trace([submitted(10.0, 0, 2), submitted(10.0, 1, 2), *steps])
    assert busiest([trace]) == 3.0
    assert busiest([Trace()]) == 0.0
    late = Trace([submitted(0.0, 0, 2), step(0, 2.5, 4.0, two), step(1, 4.0, 5.0, two), step(2, 5.0, 9.0, one)])
    assert busiest([trace, late]) == 4.0, "each from its first submission; the first of the best"
    assert busiest([late, Trace()]) == 4.0


def test_what_a_trace_holds_from_a_record_on_is_measured_alone() -> None:
    trace = Trace([header(EngineConfig(max_running=4)), *two_sends()])
    assert measure(trace).requests == 2
    last = measure(trace, first=5)
    assert (last.requests, last.steps, last.duration, last.slots) == (1, 2, 3.0, 4)
