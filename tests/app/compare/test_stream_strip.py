"""The last words below a lane's slots: who is shown does not depend on how fast frames come."""

from random import Random

from pytestqt.qtbot import QtBot

from app.bench.synthetic_lanes import lane_trace
from app.compare.lanes.stream_strip import StreamStrip
from app.playback.player import touched_by
from engine.trace import Ended, Step
from engine.trace.requests import RequestIndex


def test_who_is_shown_is_the_same_however_the_records_come(qtbot: QtBot) -> None:
    strip = StreamStrip()
    qtbot.addWidget(strip)
    strip.resize(800, 20)
    records, shown = lane_trace("continuous", slots=4, requests=40), []
    last_step = max(i for i, record in enumerate(records) if isinstance(record, Step))
    for most in (1, 7, 60, len(records)):
        index, draw, begin = RequestIndex(), Random(most), 0
        strip.clear(index.requests)
        while begin < len(records):
            new = records[begin : begin + draw.randint(1, most) if most > 1 else begin + 1]
            for record in new:
                index.feed(record)
            strip.touch(touched_by(new))
            begin += len(new)
            if most == 1 and begin == last_step // 2:
                running = {r for r, view in index.requests.items() if view.samples[0].begun and view.ended is None}
                assert len(strip.shown) == 3
                assert set(strip.shown) <= running
        shown.append(list(strip.shown))
    assert len(shown[0]) == 3
    assert all(each == shown[0] for each in shown), shown
    assert sum(isinstance(record, Ended) for record in records) == 40
