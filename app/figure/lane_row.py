"""One lane of a race as a figure shows it: what it is, its slots over time or a panel, its figures up to a moment."""

from math import inf

from PySide6.QtWidgets import QSizePolicy, QWidget

from app.compare.lanes.figures import LaneFigures
from app.compare.lanes.mark import LaneMark
from app.compare.lanes.tally import (
    Figures,
    LaneTally,
    finished_words,
    rate_words,
    ttft_words,
    waste_words,
    wasted_words,
)
from app.compare.lanes.view import LaneSentence
from app.inside.insights import Insight
from app.inside.look import Look
from app.inside.timeline.panel import TimelinePanel
from app.inside.timeline.slots import Timeline
from app.language import tr
from app.playback.player import Playback, span_of
from app.playback.scope import Scope
from app.ui.labels import label
from app.ui.layout.boxes import column, row
from app.ui.line import Line
from app.ui.look import theme
from app.words import duration, sentence
from engine.compare import RaceResult, lane_sentence, lane_title
from engine.trace import Record

SLOT, FOOT = 12, 24  # how high a slot is at least, and the axis below them
MOST_SLOTS = 32  # that make it higher


class LaneRow(QWidget):
    """A finished lane, of which it knows no more than was due at `go`'s moment. Its figures are `large` and beside its
    slots, or on one line above them."""

    def __init__(self, race: RaceResult, index: int, longest: float, insight: Insight | None, large: bool) -> None:
        super().__init__()
        lane, trace, disturbance = race.lanes[index], race.traces(index)[0], race.disturbance(index)
        total = sum(arrival.params.branches for arrival in race.workload.arrivals)
        self.index, self.total, self.longest = index, total, longest
        self.span, self.figures = span_of(trace), Figures()
        self._tally = LaneTally()
        self.playback = Playback(self)
        self.playback.rewound.connect(self._on_rewound)
        self.playback.arrived.connect(self._on_arrived)
        self.scope = Scope(self)
        self.status = label("", "secondary", "lane_status")
        self.sentence = LaneSentence("lane_sentence", size=12)
        self.sentence.warns = bool(disturbance)
        self.sentence.say(sentence(disturbance) or lane_sentence(lane), "")
        self.brief = Line("lane_brief", size=12)
        self.panel = LaneFigures(index)
        head = row(LaneMark(index), label(lane_title(lane), "brand"), 4, (self.sentence, 1), self.status, spacing=6)
        self.scope.show(trace)
        self.scope.take_in()
        self.timeline, self.insight = Timeline(), None
        self.timeline.empty_text = ""
        if insight is not None:
            self.insight = insight.build(self.scope)
            self.insight.heading.hide()
        shown = self.insight or self.timeline
        shown.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Ignored)
        body = row((shown, 1), self.panel, spacing=theme.px(16))
        self.panel.setVisible(large)
        self.brief.setVisible(not large)
        self.setLayout(column(head, self.brief, (body, 1), spacing=theme.px(3)))
        self.playback.show(trace)
        self.playback.seek(-1.0)
        self.playback.advance(inf)
        self.timeline.shared, self.timeline.duration = True, longest
        self.timeline.set_slots(min(lane.config.slots, max(1, total)))
        self.timeline.feed(trace.records, self.playback.origin or 0.0)
        self.timeline.set_range(0.0, longest)

    def pose(self, look: Look) -> None:
        if self.insight is not None:
            self.insight.pose(look)
            if isinstance(self.insight, TimelinePanel) and look.sight is None:
                self.insight.view.set_range(0.0, self.longest)

    @property
    def tall(self) -> int:
        """Pixels that it would like to be high."""
        if self.insight is not None:
            return theme.px(220)
        return theme.px(28 + FOOT + SLOT * min(max(7, self.timeline.slots), MOST_SLOTS))

    def go(self, clock: float) -> None:
        """Shows what had happened then; infinite: all of it."""
        over = clock >= self.span
        self.playback.seek(inf if over else clock)
        self.playback.advance(inf)
        self.figures = self._tally.figures()
        self.timeline.set_cursor(None if over else clock)
        self.scope.show_at(inf if over else (self.playback.origin or 0.0) + clock)
        if self.insight is not None:
            self.insight.catch_up()
        going = tr("running") if self.panel.isVisibleTo(self) else f"{clock:.2f} s"
        self.status.setText(tr("done in {time}", time=duration(self.span)) if over else going)

    def compare(self, base: Figures) -> None:
        """Says its figures, with their ratio to those of the first lane."""
        self.panel.show_figures(self.figures, self.total, base)
        rate = self.figures.rate
        ratio = rate / base.rate if rate and base.rate else None
        words = [tr("{rate} tok/s", rate=rate_words(rate)), f"× {ratio:.1f}" if ratio and self.index else ""]
        facts = [*filter(None, words), wasted_words(self.figures)]
        more = [*facts, ttft_words(self.figures)]
        most = [*more, waste_words(self.figures), finished_words(self.figures, self.total)]
        self.brief.say(*(" · ".join(each) for each in (most, more, facts)))

    def close_down(self) -> None:
        if self.insight is not None:
            self.insight.close_down()
        self.scope.stop()

    def _on_rewound(self) -> None:
        self._tally = LaneTally()

    def _on_arrived(self, records: list[Record]) -> None:
        self._tally.feed(records)
