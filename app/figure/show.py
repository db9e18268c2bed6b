"""A run's panel or a race's lanes as one widget, which shows any moment of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication, QLayout, QWidget

from app.compare.race.chart import RaceChart, RaceLane
from app.compare.race.curves import TOKENS, CurveChart
from app.compare.race.strips import ITL, TTFT, StripChart
from app.figure.lane_row import LaneRow
from app.figure.subject import RACE, Subject
from app.inside.insights import INSIGHTS
from app.inside.look import Look
from app.inside.timeline.picture.legend import SlotsLegend
from app.language import tr
from app.playback.player import span_of
from app.playback.scope import Scope
from app.ui.labels import label
from app.ui.layout.boxes import column, row
from app.ui.line import Line
from app.ui.look import theme
from app.words import number
from engine import InvalidInput, Trace
from engine.compare import RaceResult
from engine.export import Source
from engine.trace import busiest

AT_THE_END = (
    RACE,
    "timeline",
    "roofline",
    "machine",
)  # they tell of all the run; others show most where most is computed
TALL = {
    "kv_map": (250, 290),
    "beams": (240, 230),
    "attention": (400, 340),
    "experts": (340, 300),
    "memory": (270, 230),
    "roofline": (280, 280),
    "machine": (300, 270),
}
WIDE = 500  # pixels of the design: from here on the second of two heights
TALLEST = 720
CHARTS, HEAD = 150, 60  # a film has its title above and its verdict below
MARGIN = 4


class Verdict(Line):
    """Who won, and by how much; its room is kept while nothing is said."""

    def color(self) -> QColor:
        return theme.current().text


class Clock(Line):
    """Seconds since the first request, large."""

    def __init__(self) -> None:
        super().__init__("clock", Qt.AlignmentFlag.AlignRight, size=18, weight=300)

    def color(self) -> QColor:
        return theme.current().text


class RunShow(QWidget):
    """One panel of one run. `span`: seconds from the first request to the last token. `arrange` lays everything out for
    so many pixels and says how high that wants to be; `go` shows a moment, infinite at the end."""

    def __init__(self, trace: Trace, name: str) -> None:
        super().__init__()
        self.span, self.trace = span_of(trace), trace
        self.scope = Scope(self)
        self.scope.show(trace)
        self.scope.take_in()
        self.panel = next(each for each in INSIGHTS if each.name == name).build(self.scope)
        body = column((self.panel, 1), margins=(MARGIN,) * 4)
        body.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)  # the page says how wide it is
        self.setLayout(body)

    def pose(self, look: Look) -> None:
        self.panel.pose(look)
        self.scope.select(look.request)
        self.go(_moment(self.panel.objectName(), [self.trace]) if look.at is None else look.at)

    def fit(self, height: int) -> None:
        """It takes what room there is."""

    def arrange(self, width: int) -> int:
        narrow, wide = TALL.get(self.panel.objectName(), (TALLEST, TALLEST))
        usual = theme.px(wide if width >= theme.px(WIDE) else narrow)
        self.resize(width, usual)
        QApplication.sendPostedEvents()
        self.panel.catch_up()
        tall = self.panel.tall and self.panel.tall + 2 * MARGIN
        return min(tall or usual, theme.px(TALLEST))

    def go(self, clock: float) -> None:
        self.scope.show_at(self.scope.origin + clock)
        self.panel.catch_up()

    def close_down(self) -> None:
        self.panel.close_down()
        self.scope.stop()


class RaceShow(QWidget):
    """The lanes of a race below each other on one clock; with a `title` also a heading, the clock and the verdict."""

    def __init__(self, race: RaceResult, panel: str, title: str = "") -> None:
        super().__init__()
        insight = next((each for each in INSIGHTS if each.name == panel), None)
        played = [(i, traces[0]) for i in range(len(race.lanes)) if (traces := race.traces(i))]
        self._panel, self._traces = panel, [trace for _, trace in played]
        self.span = max(map(span_of, self._traces))
        large = bool(title) and insight is None
        self.rows = [LaneRow(race, i, self.span, insight, large) for i, _ in played]
        self._lanes = [RaceLane(race.names[i], i) for i, _ in played]
        for lane, (_, trace) in zip(self._lanes, played):
            lane.series.feed(trace.records, trace.origin or 0.0)
        self.charts: tuple[RaceChart, ...] = ()
        if insight is None:
            tokens = CurveChart("race_tokens", TOKENS, self._lanes)
            waits = StripChart("race_ttft", TTFT, self._lanes)
            self.charts = tokens, waits, StripChart("race_itl", ITL, self._lanes, logarithmic=True)
        for chart in self.charts:
            chart.span = self.span
        self.legend = SlotsLegend(any(lane.config.mode == "recompute" for lane in race.lanes))
        self.legend.setVisible(insight is None)
        self.title, self.clock = label(title, "title"), Clock()
        self.verdict = Verdict("verdict", size=18, weight=600)
        for each in (self.title, self.clock, self.verdict):
            each.setVisible(bool(title))
        lanes = [(each, 1) for each in self.rows]
        charts = row(*((chart, 1) for chart in self.charts), spacing=theme.px(16))
        head, margins = row(self.title, (self.clock, 1)), 4 * (theme.px(14) if title else MARGIN,)
        body = column(head, *lanes, self.legend, charts, self.verdict, margins=margins, spacing=theme.px(8))
        body.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)  # the page says how wide it is
        self.setLayout(body)

    def pose(self, look: Look) -> None:
        for each in self.rows:
            each.pose(look)
        self.go(_moment(self._panel, self._traces) if look.at is None else look.at)

    def arrange(self, width: int) -> int:
        wide = width >= theme.px(WIDE)
        for chart in self.charts[1:]:
            chart.setVisible(wide)
        for chart in self.charts:
            chart.setFixedHeight(theme.px(CHARTS))
        below = self.legend.height() + theme.px(CHARTS + 16) if self.charts else 0
        return sum(each.tall + theme.px(8) for each in self.rows) + below + 2 * MARGIN

    def fit(self, height: int) -> None:
        """Does without the charts where there is no room for them."""
        for chart in self.charts if self.arrange(self.width()) + theme.px(HEAD) > height else ():
            chart.hide()

    def go(self, clock: float) -> None:
        over = clock >= self.span
        for lane, each in zip(self._lanes, self.rows):
            each.go(clock)
            each.compare(self.rows[0].figures)
            lane.cursor = None if clock >= each.span else clock
        for chart in self.charts:
            chart.update()
        self.clock.say(f"{min(clock, self.span):.2f} s")
        self.verdict.say(self._winner() if over else "")

    def _winner(self) -> str:
        rated = [(each.figures.rate, lane.name) for each, lane in zip(self.rows, self._lanes) if each.figures.rate]
        if len(rated) < 2:
            return ""
        (most, fastest), (least, slowest) = max(rated), min(rated)
        told = {"fastest": fastest, "rate": number(most), "times": most / least, "slowest": slowest}
        return tr("{fastest}: {rate} tokens a second, × {times:.1f} those of {slowest}", **told)

    def close_down(self) -> None:
        for each in self.rows:
            each.close_down()


def _moment(panel: str, traces: Sequence[Trace]) -> float:
    """At which a panel shows most."""
    return inf if panel in AT_THE_END else busiest(traces)


def show_of(source: Source, subject: Subject, *, told: bool = False) -> RunShow | RaceShow:
    """The widget for a subject that was read. Raises InvalidInput where there is nothing to draw."""
    race = source.race
    if race is None:
        return RunShow(source.runs[0].trace, subject.panel)
    if subject.lane is None:
        return RaceShow(race, subject.panel, source.title if told else "")
    if subject.lane >= len(race.lanes):
        lanes = len(race.lanes)
        raise InvalidInput(tr("there is no lane {lane}: the race has {lanes}", lane=subject.lane + 1, lanes=lanes))
    traces = source.of_lane(subject.lane)
    if not traces:
        lane = subject.lane + 1
        raise InvalidInput(tr("lane {lane} did not come to its end; there is nothing to draw", lane=lane))
    return RunShow(traces[0], subject.panel)
