"""What a run of a split model looks like from inside: its third limit, the memory of each rank, who waited."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPointF

from app.bench.synthetic import synthetic_trace
from app.inside.memory.device_bar import DeviceBar
from app.inside.panel import InsightPanel
from app.inside.roofline.panel import Roofline
from app.inside.roofline.points import Bound, RooflinePoints
from app.inside.roofline.words import FORMULAS, detail, headline
from app.inside.step.history import StepHistory
from app.inside.step.story import StepStory
from app.inside.timeline.panel import TimelinePanel
from app.inside.timeline.picture.legend import RANKS
from app.session.memory.device import device_bill
from app.ui.look import theme
from engine import Trace
from engine.trace import Header, Interconnect, Record, Roof, Step

Open = Callable[[type[InsightPanel], Trace, int, int], InsightPanel]
SENT, SPENT = 100_000, {"rank_computing": (0.5, 0.6), "rank_communicating": (0.1, 0.1), "rank_waiting": (0.2, 0.1)}
BETWEEN = Interconnect("shared memory", (4096, 65536), (1e9, 4e9))


def split(record: Record, rate: float = 1.0) -> Record:
    """A record of one device as two ranks would have made it, `rate` times as quick at exchanging."""
    if isinstance(record, Header):
        half = record.model.weight_bytes // 2
        told = {"rank_devices": ("cpu", "cpu"), "rank_weights": (half, half + 1000), "rank_kv": (3 << 20, 3 << 20)}
        between = replace(BETWEEN, rates=tuple(rate * each for each in BETWEEN.rates))
        roof = Roof((1 << 20, 1 << 27), (2e10, 1e10), 2e11)
        return replace(record, **told, ranks_meet="shared memory", interconnect=between, roof=roof)
    if isinstance(record, Step):
        took = record.seconds.get("forward", 0.0)
        columns = {name: took * np.array(shares, np.float32) for name, shares in SPENT.items()}
        return replace(record, rank_bytes=np.array([SENT, SENT // 2], np.int64), **columns)
    return record


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return synthetic_trace(streams=8, tokens_per_second=400, seconds=1.5)


@pytest.fixture(scope="module")
def trace(records: list[Record]) -> Trace:
    return Trace([split(record) for record in records])


def test_the_exchange_limits_a_step_by_what_it_sends(records: list[Record]) -> None:
    slow, none = RooflinePoints(), RooflinePoints()
    slow.take([split(record, rate=1e-3) for record in records])
    none.take([replace(r, interconnect=None) if isinstance(r, Header) else r for r in map(split, records)])
    assert slow.header is not None
    point, other = slow.point(len(slow) - 1), none.point(len(none) - 1)
    message = SENT / (2 * slow.header.model.layers + 1)
    assert (point.sent, point.message) == (SENT, pytest.approx(message))
    rate = 1e6 + (4e6 - 1e6) * np.clip(np.log(message / 4096) / np.log(16), 0, 1)
    assert point.exchange == pytest.approx(rate)
    assert point.ceiling == pytest.approx(point.operations * rate / SENT) == point.limit
    assert (other.ceiling, other.sent) == (0, 0), "nobody measured"
    assert other.limit > point.limit
    near = replace(point, seconds=1.2 * SENT / rate, started=0.0, ended=1.2 * SENT / rate)
    assert near.bound is Bound.COMMUNICATION
    assert headline(near).startswith("Communication-bound: each rank sends")
    assert "of what the exchange between ranks allows" in detail(near)
    assert near.waiting == pytest.approx(0.3 / 1.6)
    idle = replace(near, seconds=100.0, ended=100.0, waiting=0.7)
    assert detail(idle).endswith("ranks wait for each other 70 % of their time")


@pytest.mark.parametrize("look", ["dark", "light"])
@pytest.mark.parametrize(("width", "zoom"), [(300, 1.0), (820, 1.0), (820, 2.0)])
def test_the_line_of_the_exchange_says_what_it_is(
    open_panel: Open, trace: Trace, width: int, zoom: float, look: str
) -> None:
    theme.set_theme(look)
    theme.set_zoom(zoom)
    panel = open_panel(Roofline, trace, width, 460)
    assert isinstance(panel, Roofline)
    plot = panel.plot
    plot.grab()
    place = plot._exchange
    assert place.isValid()
    assert plot.rect().toRectF().adjusted(-1, -1, 1, 1).contains(place)
    inside = [QPointF(x, place.center().y()) for x in np.linspace(place.left() + 1, place.right() - 1, 30)]
    tips = [plot.tip(at) for at in inside if plot.nearest(at.x(), at.y()) < 0]
    assert tips
    assert all("What the exchange between ranks allows" in tip and "over shared memory" in tip for tip in tips)
    assert plot.tip(QPointF(plot.width() - 1, plot.height() - 1)) == FORMULAS
    row = dict(zip(panel.facts().columns, panel.facts().rows[-1]))
    assert row["bytes a rank sends"] == SENT


@pytest.mark.parametrize(("width", "zoom"), [(240, 1.0), (700, 1.0), (700, 2.0)])
def test_each_rank_has_a_line_of_what_it_holds(qtbot, trace: Trace, width: int, zoom: float) -> None:
    theme.set_zoom(zoom)
    bar = DeviceBar()
    qtbot.addWidget(bar)
    bill = device_bill(trace.header, None)
    bar.show_bill(bill, None)
    assert [rank.kv_pool for rank in bill.ranks] == [3 << 20, 3 << 20]
    bar.resize(width, bar.height_of(bar.lines_needed(width)))
    bar.grab()
    tips = [tip for _, tip in bar._parts if tip.startswith("rank")]
    assert [tip[:6] for tip in tips] == ["rank 0", "rank 0", "rank 1", "rank 1"]
    assert all("KV pool 3 MB" in tip for tip in tips)
    assert all(bar.rect().toRectF().adjusted(0, 0, 1, 1).contains(box) for box, _ in bar._parts)
    assert "rank 1: weights" in bar.accessibleDescription()
    bar.show_bill(device_bill(replace(trace.header, rank_weights=(), rank_kv=()), None), None)
    bar.grab()
    assert not [tip for _, tip in bar._parts if tip.startswith("rank")]


def test_the_step_tells_the_share_of_communication(trace: Trace) -> None:
    history = StepHistory()
    history.take(list(trace.records))
    story = StepStory(trace.steps[-1], history, len(trace.steps) - 1, trace.origin or 0.0)
    assert story.communication_words.startswith(
        "Communication is 12 % of the ranks' time, and waiting for each other 19 %"
    )
    assert "over shared memory" in story.communication_words
    assert list(story.ranks) == ["rank 0", "rank 1"]


@pytest.mark.parametrize(("height", "zoom"), [(300, 1.0), (420, 1.0), (800, 2.0)])
def test_the_legend_tells_of_ranks_where_a_run_has_them(
    open_panel: Open, trace: Trace, records: list[Record], height: int, zoom: float
) -> None:
    theme.set_zoom(zoom)
    panel, alone = (open_panel(TimelinePanel, each, 1200, height) for each in (trace, Trace(records)))
    assert isinstance(panel, TimelinePanel)
    assert isinstance(alone, TimelinePanel)
    view, bands = panel.view, panel.view.bands()
    line = round(view.face.height)
    assert bands.legend.height >= 2 * line > alone.view.bands().legend.height
    assert bands.lanes[-1].bottom <= bands.ticks.top <= bands.legend.top
    image = view.grab().toImage()
    assert image.height() >= bands.words.bottom
    tip = view.tip(QPointF(view.area().center().x(), bands.lanes[-1].top + 2))
    assert "rank 1: computing" in tip
    assert [words for words, _ in RANKS] == ["computing", "communicating", "waiting for a rank"]


def test_the_step_of_a_pipeline_tells_of_its_bubbles(trace: Trace) -> None:
    begun, ended = np.array([0, 1, 1, 2], np.float32), np.array([1, 2, 2, 3], np.float32)
    spent = {"rank_computing": [2, 2], "rank_communicating": [0, 0], "rank_waiting": [1, 1]}
    columns = {name: np.array(values, np.float32) for name, values in spent.items()}
    step = replace(trace.steps[-1], micro_begun=begun, micro_ended=ended, **columns)
    history = StepHistory()
    history.take([replace(trace.header, rank_layers=(3, 5)), *trace.records[1:]])
    story = StepStory(step, history, len(trace.steps) - 1, trace.origin or 0.0)
    told = "Bubbles are 33 % of the stages' time; 2 micro-batches through 2 stages leave at least 33 %."
    assert story.communication_words.startswith(told)
    assert list(story.ranks) == ["rank 0, layers 1–3", "rank 1, layers 4–8"]
