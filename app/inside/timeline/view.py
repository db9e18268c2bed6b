"""The picture of the timeline panel: the slots, and on the same axis the queue, the tokens of each step and what the
host and the device did."""

import math
from dataclasses import replace

import numpy as np
from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Signal
from PySide6.QtGui import QPainter, QResizeEvent

from app.inside.timeline.axis import Axis, places_of
from app.inside.timeline.layout import Bands, Part, Parts, parts_for
from app.inside.timeline.marks import Mark, Marks, TimelineMarks
from app.inside.timeline.picture.paint import LABELLED, QUEUE, TOKENS, TimelinePaint
from app.inside.timeline.picture.stalls import draw_stalls
from app.inside.timeline.ranks import RankTimes
from app.inside.timeline.selection import SelectableTimeline
from app.inside.timeline.steps import PHASES, TimelineSteps
from app.inside.timeline.tips import Point, Tips
from app.inside.timeline.words import length_words, step_ticks
from app.language import tr
from app.plot.breaks import draw_breaks
from app.plot.scales import nice_end
from app.ui.look import theme
from app.ui.look.font_face import wrapped
from engine.trace import Array

LAST = {Axis.TIME: 10.0, Axis.STEPS: 400.0}  # what is kept in sight while the newest is followed, if there is as much
LEAST = {Axis.TIME: 0.625, Axis.STEPS: 25.0}  # and what is at first
MOST_TOLD = 0.4  # of the height, for what is told of the selection
PALE = 0.6  # how much of the panel's ground lies on what comes after the cursor
NEAR = 6  # pixels of the design: as near to a mark the pointer is on it
MOST_TOKENS = 0.4  # of the height: the track of tokens grows no higher
NOTHING = tr("Nothing has run yet. Send a prompt: its slots, steps and tokens show here as they are computed.")
LEAPS = 8  # while the newest is followed, what is in sight moves on by this part of it


class TimelineView(SelectableTimeline):
    """A timeline whose cursor hides nothing: what comes later is pale, so that one can go there.

    While it follows, the newest is at its right end; of a short run all is in sight. Zooming changes how much that is;
    panning ends following.
    """

    step_clicked = Signal(int)  # the step's place
    follow_changed = Signal()

    focus_ring = 0

    def __init__(self, steps: TimelineSteps, marks: TimelineMarks) -> None:
        super().__init__()
        self.setObjectName("timeline_view")
        self.steps, self.marks = steps, marks
        self.device = False  # whether there is a lane for one
        self.ranks = RankTimes()
        self.budget: int | None = None
        self.legend = True
        self.empty_text = NOTHING
        self._words_at_foot: tuple[str, ...] = ("",)  # from their longest wording to their shortest
        self._words_of_selection = ("", "")
        self._told_lines = 0  # lines of them that have room, which never become fewer while something is selected
        self._live, self._following, self._rests = False, True, False
        self._last: dict[Axis, float] = {}  # as a person chose it
        self._seen = False
        self._tips = Tips(self.cells, steps, marks, self.ranks)
        self._describe()

    # -- what is told ---------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """The columns have more steps."""
        self._place()
        self._describe()
        self._stale()

    def clear(self) -> None:
        self._following, self._live = True, False
        if not self.shared:
            self._range = None
        self._last = {}
        super().clear()

    def say(self, *words: str) -> None:
        """The words at the foot, from their longest wording to their shortest."""
        if words != self._words_at_foot:
            self._words_at_foot = words
            self._describe()
            self.update()

    def say_selection(self, lines: tuple[str, str]) -> None:
        """What happened in the stretch that is selected, in the place of the legend and the words at the foot."""
        if lines != self._words_of_selection:
            self._words_of_selection = lines
            self._describe()
            self._make_room()

    def set_selection(self, anchor: float | None, edge: float = 0.0) -> None:
        super().set_selection(anchor, edge)
        self._make_room()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._told_lines = 0
        super().resizeEvent(event)
        self._make_room()

    def _make_room(self) -> None:
        """For what is told of the selection."""
        told = max(self._told_lines, len(self.told())) if self.selection is not None else 0
        if told != self._told_lines:
            self._told_lines = told
            self._stale()
        self.update()

    def told(self) -> list[str]:
        """The lines about what is selected, as they stand at the foot."""
        most, wide = max(1, int(MOST_TOLD * self.height() / self.face.height)), self.width() - self._gutter()
        words = " · ".join(filter(None, self._words_of_selection))
        return wrapped(words, self.face, wide, most) if self.selection is not None and words else []

    def set_moment(self, seconds: float | None) -> None:
        """Where the cursor stands, None for at the newest. What is in sight moves with it where it would leave it."""
        if seconds == self._cursor:
            return
        self._cursor = seconds
        if seconds is not None and not self.follows:
            begin, end = self.range()
            at = self.value_of(seconds)
            if not begin <= at <= end:
                if self._range is not None:
                    first = max(0.0, at - (end - begin) / 2)
                    self._range = (first, first + end - begin)
                    self.range_changed.emit(*self._range)
                self._stale()
        self.update()

    def set_live(self, live: bool) -> None:
        """Whether there is a newest to follow: the trace grows, and no other moment is on show."""
        if live != self._live:
            shown = self.range()
            followed, self._live = self.follows, live
            if followed and not live and self._cursor is not None:
                self._range = shown
            self._stale()
            self.follow_changed.emit()

    def set_rest(self, rests: bool) -> None:
        """Whether no request waits or runs: a run that was short then fills the width."""
        if rests != self._rests:
            self._rests = rests
            if self.follows:
                self._stale()

    def set_axis(self, axis: Axis) -> None:
        """Seconds or steps; what is in sight stays in sight."""
        if axis is self.axis:
            return
        moments = None if self._range is None else [self.moment_of(value) for value in self._range]
        self.axis = axis
        if moments is not None:
            begin, end = (self.value_of(moment) for moment in moments)
            self._range = (begin, max(end, begin + axis.shortest))
        if self.shared:
            self.range_changed.emit(*self.range())
        self._stale()
        self._describe()

    def follow(self) -> None:
        """Keeps the newest in sight from now on. What a shared axis shows is not its own to choose."""
        if self.shared:
            return
        self._following, self._range = True, None
        self._stale()
        self.follow_changed.emit()

    @property
    def follows(self) -> bool:
        return self._live and self._following and not self.shared

    def moments(self) -> tuple[float, float]:
        """The seconds in sight."""
        begin, end = self.range()
        return self.moment_of(begin), self.moment_of(end)

    # -- the range ------------------------------------------------------------------------------------------------

    def range(self) -> tuple[float, float]:
        if not self.follows:
            return super().range()
        extent, last = self.extent, self._last.get(self.axis, LAST[self.axis])
        if self.axis not in self._last and 0 < extent < last:
            while not self._rests and last / 2 >= max(extent, LEAST[self.axis]):
                last /= 2
            return 0.0, nice_end(extent) if self._rests else last
        leap = last / LEAPS  # what is in sight stands still between two leaps, and only what is new is drawn
        end = max(math.ceil(extent / leap) * leap, last)
        return end - last, end

    def zoom_by(self, factor: float, x: float | None = None) -> None:
        if not self.follows:
            super().zoom_by(factor, x)
            return
        begin, end = self.range()
        self._last[self.axis] = max(self.axis.shortest, min((end - begin) * factor, 1e7))
        self._stale()
        self.range_changed.emit(*self.range())

    def see_all(self) -> None:
        self._leave()
        super().see_all()

    def _choose(self, begin: float, end: float) -> None:
        self._leave()
        super()._choose(begin, end)

    def _leave(self) -> None:
        """Follows no longer; what is in sight stays."""
        if self.follows:
            self._range, self._following = self.range(), False
            self.follow_changed.emit()

    # -- geometry -------------------------------------------------------------------------------------------------

    def sizeHint(self) -> QSize:
        return QSize(theme.px(800), theme.px(300))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(240), theme.px(96))

    def _gutter(self) -> int:
        names = TOKENS, QUEUE, *map(self.ranks.title, range(self.ranks.ranks))
        return max(super()._gutter(), math.ceil(max(map(self.face.width, names))) + theme.px(8))

    def _parts(self) -> Parts:
        line = math.ceil(self.face.height)
        lanes, told, stage = 1 + self.device + self.ranks.ranks, self._told_lines, theme.presenting()
        if stage and not self.ranks.ranks:
            lanes = 0  # phases are too small for a room; who waits for whom is what a split run is shown for
        legend = self.legend * (2 if self.ranks.ranks else 1)
        return parts_for(self.height(), line, lanes, theme.zoom(), legend, told, stage)

    def _top(self) -> int:
        return self._parts().queue

    def _foot(self) -> int:
        return self._parts().foot

    def bands(self) -> Bands:
        """Where the parts beside the slots are."""
        bands = self._parts().bands(self.area().bottom() + 1, self.height(), round(MOST_TOKENS * self.height()))
        return replace(bands, device=self.device)

    # -- painting -------------------------------------------------------------------------------------------------

    def restyle(self) -> None:
        self._paint_parts: TimelinePaint | None = None
        super().restyle()

    def _stale(self) -> None:
        self._seen = False
        super()._stale()

    def _until(self) -> float:
        return math.inf

    def _ticks(self, count: float) -> list[tuple[float, str]]:
        if self.axis is Axis.STEPS:
            return step_ticks(*self.range(), count, self.steps.step)
        return super()._ticks(count)

    def _paints(self) -> TimelinePaint:
        if self._paint_parts is None or self._paint_parts.ratio != self._ratio():
            self._paint_parts, self._seen = TimelinePaint(self._ratio()), False
        return self._paint_parts

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        painter.fillRect(dirty, theme.current().panel)
        if not len(self.cells):
            self.say_empty(painter, self.empty_text)
            return
        paint, area, bands = self._paints(), self.area(), self.bands()
        if not self._seen:
            self._seen, columns = True, max(1, round(area.width() * self._ratio()))
            paint.see(self.steps, self.ranks, self.range(), self.axis, self.folds, columns, bands, self.budget)
        self._paint_rows(painter)
        self._paint_slots(painter, area)
        if bands.tokens.height:
            paint.tokens(painter, area, bands.tokens)
        paint.lanes(painter, area, bands, self._named_segments(), self.steps.clocked, self.ranks.title)
        breaks = self._breaks()
        draw_breaks(painter, breaks, QRectF(area), bands.ticks.top)
        painter.save()
        painter.setClipRect(QRectF(area.left() - theme.px(4), 0, area.width() + theme.px(8), self.height()))
        self._paint_marks(painter, paint)
        painter.restore()
        paint.budgets(painter, area, self._xs(self._budgets().time), bands.ticks.top)
        if bands.queue.height:
            marks = self.marks.marks(*self._span())
            queued = marks.where(marks.queued)
            begin, end = self.range()
            middles = begin + (np.arange(area.width()) + 0.5) / area.width() * (end - begin)
            waiting = self.steps.waiting_at(middles, self.axis, self.folds)
            paint.queue(painter, area, bands.queue, waiting, queued, self._xs(queued.time), self._selected)
        bottom = bands.ticks.top
        self.paint_selection(painter, area, bottom)
        if self._cursor is not None:
            x, right = self.x_at(self._cursor), area.right() + theme.px(5)
            left = max(x + 1, area.left())
            pale = theme.faded(theme.current().panel, PALE)
            painter.fillRect(QRectF(left, 0, max(0.0, right - left), bottom), pale)
            self._paint_cursor(painter, x, 0, bottom + theme.px(3))
        if bands.tokens.height:
            paint.budget(painter, area, bands.tokens, breaks)
        self._paint_ticks(painter, area, bottom)
        self._paint_foot(painter, paint, bands)

    def _budgets(self) -> Marks:
        marks = self.marks.marks(*self._span())
        return marks.where(marks.kind == Mark.BUDGET_SET)

    def _paint_marks(self, painter: QPainter, paint: TimelinePaint) -> None:
        area, bars, ratio = self.area(), self._bars(), self._ratio()
        pitch, bar = bars.pitch / ratio, bars.bar / ratio

        def middles(slot: Array) -> Array:
            return np.asarray(area.top() + (slot // self._slots_a_row()) * pitch + (bars.top + bars.bar / 2) / ratio)

        stalls = self.marks.stalls(*self._span())
        left, right = self._xs(stalls.shown), self._xs(stalls.end)
        cursor = math.inf if self._cursor is None else self.x_at(self._cursor)
        draw_stalls(painter, self.face, stalls, left, right, middles(stalls.slot), bar, self._selected, cursor)
        marks = self.marks.marks(*self._span())
        marks = marks.where(~marks.queued)
        paint.marks(painter, marks, self._xs(marks.time), middles(marks.slot), bar, self._selected)

    def _paint_foot(self, painter: QPainter, paint: TimelinePaint, bands: Bands) -> None:
        left, baseline = self.area().left(), bands.words.top + theme.px(2) + self.face.ascent
        if bands.legend.height:
            stalls = tr("stall: over {length}", length=length_words(self.marks.threshold))
            kinds, apart = self.marks.kinds, self.told_apart
            paint.legend(painter, self.area().left(), self.width(), bands.legend, kinds, stalls, self.ranks, apart)
        t, told = theme.current(), self.told()
        room = self.width() - left
        fitting = next((words for words in self._words_at_foot if self.face.width(words) <= room), None)
        at_foot = [] if theme.presenting() else [fitting or self.face.cut(self._words_at_foot[-1], room)]
        for i, words in enumerate(told or at_foot):
            self.face.say(
                painter, left, baseline + i * math.ceil(self.face.height), words, t.text if told else t.secondary
            )

    def _span(self) -> tuple[float, float]:
        """The seconds in sight and a little more, so that what is cut by a rim is drawn."""
        begin, end = self.range()
        more = 8 * theme.zoom() / self.area().width() * (end - begin)
        if self.axis is Axis.TIME:
            return self.moment_of(begin - more), self.moment_of(end + more)
        first = self.moment_of(begin - more) if begin > more else -math.inf
        return first, self.moment_of(end + more) if end + more < self.cells.steps else math.inf

    def _xs(self, times: Array) -> Array:
        """Where moments are, from left to right."""
        (begin, end), area = self.range(), self.area()
        if self.axis is Axis.STEPS:
            times = places_of(self.cells.step_begins, self.cells.step_ends, times)
        else:
            times = self.folds.values(times)
        return np.asarray(area.left() + (times - begin) / (end - begin) * area.width())

    def _named_segments(self) -> list[tuple[str, float, float]]:
        first, last = self.steps.in_sight(*self.moments())
        if last - first > LABELLED:
            return []
        segments = self.steps.segments(max(0, first - 1), last)
        left, right = self._xs(segments.begin), self._xs(segments.end)
        wide = np.flatnonzero((right - left >= theme.px(24)) & (right > self.area().left()) & (left < self.width()))
        names = [PHASES[phase] for phase in segments.phase[wide].tolist()]
        names = ["launch" if self.device and name == "forward" else name for name in names]
        return list(zip(names, left[wide].tolist(), right[wide].tolist()))

    def _told(self) -> tuple[str, str]:
        told = "; ".join(filter(None, self._words_of_selection)) if self.selection else self._words_at_foot[0]
        return f"{told}.", tr("A click goes to its step.")

    # -- the person -----------------------------------------------------------------------------------------------

    def clicked(self, position: QPointF) -> None:
        area, bands = self.area(), self.bands()
        if not area.left() <= position.x() <= area.right() or position.y() >= bands.ticks.top:
            return
        if area.contains(position.toPoint()):
            super().clicked(position)
        elif bands.queue.holds(position.y()):
            point = self._under(position)
            near = self._tips.marks_at(point) if point is not None else None
            if near:
                self.request_clicked.emit(int(near.request[-1]))
        place = self.cells.place_at(self.time_at(position.x()))
        if place >= 0:
            self.step_clicked.emit(place)

    def _under(self, position: QPointF) -> Point | None:
        """The place under the pointer; None beside all parts."""
        area, bands, y = self.area(), self.bands(), position.y()
        if not len(self.cells) or not area.left() <= position.x() <= area.right():
            return None
        near = theme.px(NEAR)
        reach = self.time_at(position.x() - near), self.time_at(position.x() + near)
        pixel = min(int(position.x()) - area.left(), area.width() - 1)
        slot = self.slot_at(y) if area.contains(position.toPoint()) else -1
        part = Part.SLOTS if area.contains(position.toPoint()) else bands.part_at(y)
        value = self.value_at(area.left() + pixel + 0.5)
        return Point(part, self.time_at(position.x()), reach, value, slot, self.folds, bands.rank_at(y))

    def tip(self, at: QPointF) -> str:
        if self.selection is not None and at.y() >= self.bands().words.top:
            return "\n".join(self._words_of_selection)
        for each in self._breaks():
            if each.left <= at.x() <= each.right and at.y() < self.bands().ticks.bottom:
                return each.tip
        point = self._under(at)
        return self._tips.tip(point, self.axis, self.device, self.budget) if point is not None else ""
