"""One lane of a race: what it is, its timeline, its streams in small, its figures."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from PySide6.QtCore import QRect, Qt, QTimer, Signal
from PySide6.QtGui import QPainter, QResizeEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QSizePolicy, QStackedWidget, QWidget

from app.compare.lanes.figures import LaneFigures
from app.compare.lanes.mark import LaneMark
from app.compare.lanes.outside import outside_words
from app.compare.lanes.stream_strip import StreamStrip
from app.compare.lanes.tally import Figures, LaneTally
from app.compare.race.lane_show import LaneShow, LaneState
from app.inside.insights import Insight
from app.inside.on_demand import InsightPlace
from app.inside.panel import InsightPanel
from app.inside.timeline.axis import Axis
from app.inside.timeline.panel import TimelinePanel
from app.inside.timeline.runs import Cell
from app.inside.timeline.slots import Timeline
from app.inside.timeline.viewport import TimelineSpan
from app.language import tr
from app.playback.player import touched_by
from app.ui.controls import button
from app.ui.labels import Note, label, set_role
from app.ui.layout.boxes import column, named, row
from app.ui.line import Line
from app.ui.look import theme
from app.ui.look.backstage import Backstage
from app.ui.look.font_face import Face
from app.words import duration, held_words, model_words, sentence
from engine import Parallel
from engine.config import SCHEMES
from engine.jobs import engine_missing
from engine.trace import Notice, Record, Step

if TYPE_CHECKING:
    from app.compare.race.session import RaceSession

AGAIN = tr("Repeats the lane's disturbed runs, each in the place of the one before")
UNKNOWN = tr("Unknown from outside: a server shows its clients nothing but their own answers.")
STATES = {
    LaneState.WAITING: tr("waiting"),
    LaneState.LOADING: tr("loading"),
    LaneState.STARTING: tr("getting ready"),
    LaneState.FAILED: tr("failed"),
    LaneState.STOPPED: tr("stopped"),
}
FIGURES_MS = 100
MOST_EMPTY_SLOTS = 16  # rows a lane has before they are used; more come as they are
LEAST, STAGE_LEAST = 136, 62  # pixels of the design that a lane has at least
LEAST_INSIDE = 250  # that one of a split model has which shows a panel that looks inside: its ranks have room
STRIP_FROM, STRIP_BELOW_MAP = 168, 150  # pixels of the design: a lane this tall has room for its streams


class LaneSentence(Line):
    """What the lane does, or, behind a mark of warning, why its figures are not to be trusted."""

    warns = False
    mark = Face(13, 700)

    def _indent(self) -> int:
        return round(self.mark.width("!")) + theme.px(8) if self.warns else 0

    def cut(self, width: int) -> str:
        return super().cut(width - self._indent())

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        if self.warns and self.text():
            self.mark.say(painter, 0, self.mark.baseline(0, self.height()), "!", theme.current().warn)
        painter.translate(self._indent(), 0)
        super().paint(painter, dirty)


class LaneView(QFrame):
    """Shows a `LaneShow`. It knows no clock: the page tells it where the cursor stands and what span is in sight."""

    figures_changed = Signal()
    panel_built = Signal(object)  # InsightPanel
    range_changed = Signal(float, float)  # seconds that a person chose to see: all lanes show them

    def __init__(self, show: LaneShow, race: RaceSession) -> None:
        super().__init__()
        self.lane, self._race = show, race
        named(self, f"lane_view_{show.index}", "panel", said=show.name)
        self.tally = LaneTally()
        self.figures = Figures()
        self._places: dict[str, InsightPlace] = {}
        self._timelines: list[TimelineSpan] = []
        self._shown = 0.0, 1.0, 0.0  # seconds: from, to, and how many there are
        self._base: Figures | None = None
        self._stale = True
        self.title = label(show.title, "brand")
        self.sentence = LaneSentence("lane_sentence")
        self.again = button("lane_again", tr("Run again"), lambda: race.run_again(show.index), role="quiet", tip=AGAIN)
        self.again.setEnabled(not engine_missing())
        self._say_what()
        self.status = label("", "secondary", "lane_status")
        self._notice = ""  # what the lane's trace told a person to know last
        self.timeline = Timeline(step_reader=self._step_at)
        self.timeline.empty_text = ""
        if show.lane.server is not None:
            self.timeline.words_of = self._outside_words
        self._share(self.timeline)
        self.strip = StreamStrip(self.timeline.color_of)
        self.panel = LaneFigures(show.index)
        self.error = Note("lane_error", "error")
        self._lay_out()
        slots = 1 if show.lane.server is not None else show.lane.config.slots
        self.timeline.set_slots(min(slots, max(1, show.total), MOST_EMPTY_SLOTS))
        playback = show.playback
        playback.trace_changed.connect(self._on_trace)
        playback.recorded.connect(self._on_recorded)
        playback.rewound.connect(self._on_rewound)
        playback.arrived.connect(self._on_arrived)
        race.phase_changed.connect(self._say_what)
        show.changed.connect(self._on_changed)
        show.scope.driver = self
        self._timer = QTimer(self, interval=FIGURES_MS)
        self._timer.timeout.connect(self._tell)
        self._timer.start()
        self._on_rewound()
        self._on_changed()
        self._tell()
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()

    def _lay_out(self) -> None:
        head = row(LaneMark(self.lane.index), self.title, 4, (self.sentence, 1), self.again, self.status, spacing=8)
        self.body = QStackedWidget()
        self.body.addWidget(self.timeline)
        self.unknown = label(UNKNOWN, "secondary", "lane_unknown")
        self.unknown.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.unknown.setWordWrap(True)
        self.body.addWidget(self.unknown)
        left = column((self.body, 1), self.strip, (self.error, 0, Qt.AlignmentFlag.AlignTop), spacing=4)
        self._grid = QGridLayout(self)
        self._grid.setHorizontalSpacing(24)
        self._grid.addLayout(head, 0, 0, 1, 2)
        self._grid.addLayout(left, 1, 0)
        self._grid.addWidget(self.panel, 1, 1)
        self._grid.setColumnStretch(0, 1)
        Backstage(self, self.again)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def hasHeightForWidth(self) -> bool:
        """No: lanes share the height there is, whatever words they hold."""
        return False

    # -- what is told ---------------------------------------------------------------------------------------------

    def set_base(self, base: Figures | None) -> None:
        """The first lane's figures, to compare with; None for the first lane itself."""
        if base != self._base:
            self._base, self._stale = base, True

    def set_clock(self, clock: float) -> float | None:
        """Shows the lane as it was then; returns where its cursor stands, None where it shows all there is."""
        live = self.lane.state is LaneState.RUNNING
        ended = not live and clock >= self.lane.span
        cursor = None if live or ended else clock
        self.timeline.set_cursor(cursor)
        self.lane.scope.show_at(inf if cursor is None else (self.lane.playback.origin or 0.0) + cursor)
        if live:
            self.status.setText(tr("running {clock:.1f} s", clock=clock) + self._repeat())
        elif self.lane.state in (LaneState.DONE, LaneState.STOPPED) and self.lane.span:
            span = duration(self.lane.span)
            done = self.lane.state is LaneState.DONE
            words = tr("done in {span}", span=span) if done else tr("stopped after {span}", span=span)
            words = "  ·  ".join(filter(None, (words, self.lane.spread)))
            short = self._race.longest < 1
            at = tr("replay {clock:.0f} ms", clock=1e3 * clock) if short else tr("replay {clock:.1f} s", clock=clock)
            self.status.setText(words if ended else at)
        return cursor

    def show_range(self, begin: float, end: float, span: float) -> None:
        """These of so many seconds, in whatever has an axis of time."""
        self._shown = begin, end, span
        for timeline in self._timelines:
            self._show(timeline)
        for place in self._places.values():
            if place.panel is not None:
                place.panel.share_range(begin, end)

    def _show(self, timeline: TimelineSpan) -> None:
        begin, end, timeline.duration = self._shown
        if timeline.axis is Axis.TIME:
            timeline.set_range(begin, end)

    def _share(self, timeline: TimelineSpan) -> None:
        self._timelines.append(timeline)
        timeline.shared = True
        timeline.range_changed.connect(lambda *shown: self._on_range(timeline.axis, *shown))
        self._show(timeline)

    def _on_range(self, axis: Axis, begin: float, end: float) -> None:
        if axis is Axis.TIME:
            self.range_changed.emit(begin, end)

    def _on_built(self, panel: InsightPanel) -> None:
        if isinstance(panel, TimelinePanel):
            self._share(panel.view)
        panel.share_range(*self._shown[:2])
        self.panel_built.emit(panel)

    def set_view(self, insight: Insight | None) -> None:
        """What the lane shows of its trace: one of the panels that look inside, or None for its plain timeline."""
        if insight is None:
            self.body.setCurrentWidget(self.timeline)
        elif self.lane.lane.server is not None:
            self.body.setCurrentWidget(self.unknown)
        else:
            place = self._places.get(insight.name)
            if place is None:
                place = self._places[insight.name] = InsightPlace(insight, self.lane.scope)
                place.built.connect(self._on_built)
                self.body.addWidget(place)
            self.body.setCurrentWidget(place)
        self._set_least()
        self._show_strip()

    def close_down(self) -> None:
        """The lane goes."""
        for place in self._places.values():
            place.close_down()

    def _say_what(self) -> None:
        """What the mode does; before it how the weights are held, and of which model, where the lanes differ in that.
        The precision is known once they are loaded. In its place what disturbed the lane."""
        self.sentence.warns = bool(self.lane.disturbance)
        self.again.setVisible(self.sentence.warns and not self._race.busy)
        spec, trace = self.lane.lane.spec, self.lane.playback.trace
        here = (each.lane.spec for each in self._race.lanes if each.lane.server is None)
        specs = {replace(each, parallel=Parallel(), kv_heads="auto") for each in here}  # those are in their titles
        if self.lane.lane.server is not None:
            specs = set()
        words = [self.lane.sentence]
        if theme.presenting():
            words = [sentence(self.lane.disturbance)] if self.lane.disturbance else []
        elif self.lane.disturbance:
            why = sentence(self.lane.disturbance)
            words = [tr("{disturbance}: it may be faster than it looks", disturbance=why)]
        if len(specs) > 1 and not theme.presenting():
            words.insert(0, held_words(trace.header.model) if trace.records else SCHEMES[spec.quantization].title)
        if len({(each.source, each.revision) for each in specs}) > 1:
            words.insert(0, model_words(spec.source))
        self.sentence.say("  ·  ".join(words))

    def _repeat(self) -> str:
        repeats = self._race.repeats
        return "  ·  " + tr("run {n} of {all}", n=self.lane.repeat + 1, all=repeats) if repeats > 1 else ""

    # -- slots ----------------------------------------------------------------------------------------------------

    def drive(self, moment: float) -> None:
        """A panel of this lane asks for a moment: all lanes go there."""
        race = self._race
        if race.can_replay:
            race.pause()
            race.seek(race.longest if moment == inf else moment - (self.lane.playback.origin or 0.0))

    def _on_trace(self) -> None:
        self._notice = ""
        self.timeline.clear()
        self._say_what()

    def _on_recorded(self, records: list[Record]) -> None:
        for record in records:
            if isinstance(record, Notice) and record.level in ("warning", "error"):
                self._notice = sentence(record.text)
                self._on_changed()
        self.timeline.feed(records, self.lane.playback.origin or 0.0)

    def _step_at(self, place: int) -> Step:
        records = self.lane.playback.trace.records
        step = records[records.step_places[place]]
        assert isinstance(step, Step)
        return step

    def _outside_words(self, cell: Cell) -> str:
        playback = self.lane.playback
        return outside_words(cell, playback.requests, playback.origin or 0.0)

    def _on_rewound(self) -> None:
        self.tally = LaneTally()
        self.strip.clear(self.lane.playback.requests)
        self._stale = True

    def _on_arrived(self, records: list[Record]) -> None:
        self.tally.feed(records)
        self.strip.touch(touched_by(records))
        self._stale = True

    def _on_changed(self) -> None:
        lane = self.lane
        self._say_what()
        failed = lane.state is LaneState.FAILED
        self.error.say(sentence(lane.error) if failed else self._notice, "error" if failed else "warning")
        self.panel.setVisible(not failed)
        self.body.setVisible(not failed)
        self._show_strip()
        set_role(self.status, "error" if failed else "secondary")
        match lane.state:
            case LaneState.LOADING if lane.load is not None:
                self.status.setText(tr("loading the model · {progress}", progress=lane.load.words))
            case LaneState.RUNNING:
                self.status.setText(tr("running") + self._repeat())
            case LaneState.DONE:
                self.status.setText(tr("done in {span}", span=duration(lane.span)))
            case state:
                self.status.setText(STATES[state])

    def _tell(self) -> None:
        """Figures and ratio, ten times a second at most."""
        if not self._stale:
            return
        self._stale = False
        self.figures = self.tally.figures()
        leads = not self.lane.index and len(self._race.lanes) > 1
        base = self.figures if leads else self._base
        self.panel.show_figures(self.figures, self.lane.total, base)
        self.figures_changed.emit()

    def _on_theme(self) -> None:
        """On a stage, as many lanes as there are, and nothing below the fold."""
        stage = theme.presenting()
        self._set_least()
        self._grid.setContentsMargins(16, 4 if stage else 10, 16, 4 if stage else 10)
        self._grid.setVerticalSpacing(2 if stage else 8)
        self._say_what()

    def _set_least(self) -> None:
        spec, plain = self.lane.lane.spec, self.body.currentWidget() in (self.timeline, self.unknown)
        least = LEAST if plain or spec.parallel.ranks == 1 else LEAST_INSIDE
        self.setMinimumHeight(theme.px(STAGE_LEAST if theme.presenting() else least))

    def _show_strip(self) -> None:
        tall: dict[QWidget | None, int] = {self.timeline: STRIP_FROM, self._places.get("kv_map"): STRIP_BELOW_MAP}
        least = tall.get(self.body.currentWidget())
        roomy = least is not None and self.height() >= theme.px(least)
        self.strip.setVisible(roomy and self.lane.state is not LaneState.FAILED)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_strip()
