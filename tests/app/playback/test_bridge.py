import time

import numpy as np
from pytestqt.qtbot import QtBot

from app.bench.synthetic import header
from app.playback.bridge import BUDGET, Bridge
from engine import SamplingParams, Trace
from engine.bench.trace.step_builder import built_step
from engine.trace import Ended, FinishReason, Record, Step, Submitted


def submitted(request: int) -> Submitted:
    return Submitted(0.0, request, "a prompt", np.arange(3, dtype=np.int32), SamplingParams())


def step(number: int, rows: int, seconds: float = 0.01) -> Step:
    columns, texts = {"first": [3 + number] * rows, "token": range(rows)}, ["ab"] * rows
    return built_step(number, number * seconds, (number + 1) * seconds, range(rows), texts, **columns)


def trace(*records: Record) -> Trace:
    return Trace([header(8, 100), *records])


def test_requests_are_known_before_the_records_are_told(qtbot: QtBot, bridge: Bridge) -> None:
    texts = []
    bridge.records_arrived.connect(lambda records: texts.append(bridge.requests[0].text))
    shown = trace(submitted(0), step(0, 1))
    with qtbot.waitSignal(bridge.records_arrived):
        bridge.show(shown)
    assert texts == ["ab"]


def test_every_record_is_told_once_and_in_order(qtbot: QtBot, bridge: Bridge) -> None:
    told: list[Record] = []
    bridge.records_arrived.connect(told.extend)
    growing = trace(submitted(0))
    bridge.show(growing)
    for i in range(20):
        growing.append(step(i, 1))
        qtbot.waitUntil(lambda: bridge.behind == 0)
    assert told == growing.since(0)


def test_a_flood_is_spread_over_frames_that_stay_short(qtbot: QtBot, bridge: Bridge) -> None:
    frames: list[int] = []
    bridge.records_arrived.connect(lambda records: frames.append(len(records)))
    bridge.show(trace(*(submitted(i) for i in range(256)), *(step(i, 256) for i in range(300))))
    qtbot.waitUntil(lambda: bridge.behind == 0)
    assert len(frames) > 1, f"a frame takes no more than fits in {BUDGET} s"
    assert sum(frames) == 557


def test_busy_is_told_when_the_first_request_opens_and_the_last_ends(qtbot: QtBot, bridge: Bridge) -> None:
    told: list[bool] = []
    bridge.busy_changed.connect(told.append)
    growing = trace(submitted(0), submitted(1))
    bridge.show(growing)
    qtbot.waitUntil(lambda: bridge.busy)
    growing.append(Ended(1.0, 0, FinishReason.STOP))
    qtbot.waitUntil(lambda: bridge.behind == 0)
    growing.append(Ended(1.0, 1, FinishReason.STOP))
    qtbot.waitUntil(lambda: not bridge.busy)
    assert told == [True, False]


def test_what_is_shown_anew_runs_no_more_and_what_was_just_submitted_does(qtbot: QtBot, bridge: Bridge) -> None:
    over = trace(submitted(0), *(step(i, 1) for i in range(300)), Ended(3.0, 0, FinishReason.STOP))
    bridge.show(over)
    assert bridge.behind
    assert not bridge.running, "though its end is not on show yet"
    qtbot.waitUntil(lambda: bridge.behind == 0)
    following = trace()
    bridge.show(following, keep_until_used=True)
    following.append(submitted(0))
    assert bridge.running


def test_requests_that_come_and_go_within_a_frame_are_told_too(qtbot: QtBot, bridge: Bridge) -> None:
    told: list[bool] = []
    bridge.busy_changed.connect(told.append)
    growing = trace(submitted(0), step(0, 1), Ended(1.0, 0, FinishReason.STOP))
    bridge.show(growing)
    qtbot.waitUntil(lambda: told == [True, False])
    growing.extend([submitted(1), step(1, 1), Ended(1.0, 1, FinishReason.STOP)])
    qtbot.waitUntil(lambda: told == 2 * [True, False])
    assert bridge.begun == 4


def test_texts_stay_until_the_next_trace_has_a_request(qtbot: QtBot, bridge: Bridge) -> None:
    bridge.show(trace(submitted(0), step(0, 1), Ended(1.0, 0, FinishReason.STOP)))
    qtbot.waitUntil(lambda: bool(bridge.requests) and bridge.behind == 0)
    following = trace()
    bridge.show(following, keep_until_used=True)
    assert bridge.requests[0].text == "ab"
    with qtbot.waitSignal(bridge.trace_reset):
        following.append(submitted(0))
    qtbot.waitUntil(lambda: 0 in bridge.requests)
    assert bridge.trace is following
    assert bridge.requests[0].text == ""


def test_an_unused_trace_is_replaced_at_once(qtbot: QtBot, bridge: Bridge) -> None:
    bridge.show(trace())
    following = trace()
    with qtbot.waitSignal(bridge.trace_reset):
        bridge.show(following, keep_until_used=True)
    assert bridge.trace is following


def test_the_rate_is_that_of_the_last_second_and_falls_to_zero(qtbot: QtBot, bridge: Bridge) -> None:
    growing = trace(*(submitted(i) for i in range(10)), *(step(i, 10, seconds=0.01) for i in range(50)))
    bridge.show(growing)
    qtbot.waitUntil(lambda: bridge.position > 0 and bridge.behind == 0)
    qtbot.waitUntil(lambda: 900 < bridge.live_rate < 1100)
    qtbot.waitUntil(lambda: bridge.live_rate == 0)


def test_about_thirty_frames_a_second_and_none_after_the_stop(qtbot: QtBot, bridge: Bridge) -> None:
    qtbot.waitUntil(lambda: bridge.frames_per_second > 10)
    assert bridge.frames_per_second <= 35
    bridge.stop()
    until = time.perf_counter() + 1.05
    qtbot.waitUntil(lambda: time.perf_counter() > until)
    assert bridge.frames_per_second == 0
