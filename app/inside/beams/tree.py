"""The drawing of a beam search: a column of candidates a step, with lines to what each continues."""

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen

from app.inside.beams.history import Candidate, Search
from app.inside.chart import Chart
from app.inside.visible import VISIBLE
from app.language import tr
from app.ui.look import theme
from app.ui.look.font_face import Face
from engine.trace import Fate

CELL = 92  # pixels of the design: the least width of a column's words
LINES = 30  # the room for lines between two columns
ROW = 17
EMPTY = tr("Beam search weighs several continuations at once: set Beams in Sampling, and each step's are drawn here.")
NOT_YET = tr("Its prompt is still computed: nothing was weighed yet.")


@dataclass(frozen=True, slots=True)
class Spot:
    """A candidate, and where its words are."""

    candidate: Candidate
    place: int
    box: QRectF


class BeamTree(Chart):
    """Shows what `show_search` was given last: the newest columns that there is room for, and the results."""

    hint, least = (520, 300), (220, 120)
    focus_ring = 4
    face, strong, tiny = Face(12), Face(12, 600), Face(11)

    def __init__(self) -> None:
        super().__init__("beam_tree", tr("Beams: what each step weighed, what lives on and what is finished"))
        self.search: Search | None = None
        self.place, self.certain = -1, 0

    def show_search(self, search: Search | None, place: int, certain: int) -> None:
        """A search after the column of this place, of whose paths so many tokens are certain."""
        self.search, self.place, self.certain = search, place, certain
        self.setAccessibleDescription("; ".join(self._said()) or EMPTY)
        self.update()

    def _said(self) -> list[str]:
        if self.search is None or self.place < 0:
            return []
        return [f"{i}. {each.total:.2f}: {each.said}" for i, each in enumerate(self.search.leading(self.place), 1)]

    def spots(self) -> list[Spot]:
        """Where each candidate in sight is, column by column."""
        if self.search is None or self.place < 0:
            return []
        px, top = theme.px, self._top()
        count = max(1, (self.width() + px(LINES)) // px(CELL + LINES))
        pitch = (self.width() + px(LINES)) / count
        first = max(0, self.place + 1 - count)
        found = []
        for place in range(first, self.place + 1):
            x = (place - first) * pitch
            for row, candidate in enumerate(self.search.columns[place].candidates):
                box = QRectF(x, top + row * px(ROW), pitch - px(LINES), px(ROW))
                if box.bottom() <= self.height():
                    found.append(Spot(candidate, place, box))
        return found

    def _top(self) -> float:
        """Below what is certain and the columns' heads."""
        return self.face.height + self.tiny.height + theme.px(10)

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t = theme.current()
        if self.search is None or self.place < 0:
            self.say_empty(painter, EMPTY if self.search is None else NOT_YET)
            return
        spots = self.spots()
        leading = self.search.leading(self.place)
        best = {id(each) for each in leading[0].path} if leading else set()
        kept = {id(each) for leaf in leading for each in leaf.path}
        where = {id(spot.candidate): spot for spot in spots}
        for spot in sorted(spots, key=lambda s: id(s.candidate) in kept):
            parent = where.get(id(spot.candidate.parent))
            if parent is not None:
                self._line(painter, parent, spot, self._ink(spot, best, kept), id(spot.candidate) in best)
        self._heads(painter, spots)
        for spot in spots:
            self._cell(painter, spot, self._ink(spot, best, kept), id(spot.candidate) in best)
        self._certain(painter, t)
        self._results(painter, spots, t)

    def _ink(self, spot: Spot, best: set[int], kept: set[int]) -> QColor:
        """Of what the leading path goes through; of what others do; of what ended; grey for what was pruned, at once
        or later."""
        t = theme.current()
        if id(spot.candidate) in best:
            return t.accent
        if spot.candidate.fate is Fate.FINISHED:
            return t.good
        return t.text if id(spot.candidate) in kept else t.faint

    def _line(self, painter: QPainter, parent: Spot, spot: Spot, ink: QColor, strong: bool) -> None:
        begin = QPointF(parent.box.right(), parent.box.center().y())
        end = QPointF(spot.box.left() - theme.px(3), spot.box.center().y())
        middle = (begin.x() + end.x()) / 2
        path = QPainterPath(begin)
        path.cubicTo(QPointF(middle, begin.y()), QPointF(middle, end.y()), end)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        faint = ink == theme.current().faint
        painter.setPen(QPen(theme.faded(ink, 0.5 if faint else 0.9), theme.stroke(4 / 3 if strong else 2 / 3)))
        painter.drawPath(path)

    def _cell(self, painter: QPainter, spot: Spot, ink: QColor, strong: bool) -> None:
        px, box, candidate = theme.px, spot.box, spot.candidate
        face = self.strong if strong else self.face
        score = f"{candidate.total:.2f}"
        baseline = self.face.baseline(box.top(), box.height())
        words = candidate.shown + (" ■" if candidate.fate is Fate.FINISHED else "")
        room = box.width() - self.tiny.width(score) - px(10)
        face.say(painter, box.left() + px(2), baseline, face.cut(words, room), ink)
        faint = theme.current().secondary if ink != theme.current().faint else ink
        self.tiny.say(painter, box.right() - px(3), baseline, score, faint, before=1)

    def _heads(self, painter: QPainter, spots: list[Spot]) -> None:
        """The number of each column's token."""
        t, drawn = theme.current(), set()
        baseline = self._top() - theme.px(3) - self.tiny.height + self.tiny.ascent
        for spot in spots:
            if spot.place not in drawn:
                drawn.add(spot.place)
                number = tr("token {n:,}", n=spot.candidate.length)
                self.tiny.say(painter, spot.box.left() + theme.px(2), baseline, number, t.secondary)

    def _certain(self, painter: QPainter, t: theme.Theme) -> None:
        """What every result begins with, and what the leading path says beyond it; the end of it is in sight."""
        assert self.search is not None
        leading = self.search.leading(self.place)
        if not leading:
            return
        path = leading[0].path
        sure = "".join(each.text for each in path[: self.certain]).translate(VISIBLE)
        open_end = "".join(each.text for each in path[self.certain :]).translate(VISIBLE)
        open_end = self.face.cut(open_end, self.width() - theme.px(4), Qt.TextElideMode.ElideLeft)
        room = self.width() - theme.px(4) - self.face.width(open_end)
        sure = self.strong.cut(sure, room, Qt.TextElideMode.ElideLeft) if room > theme.px(24) else ""
        baseline = theme.px(2) + self.face.ascent
        self.strong.say(painter, 0, baseline, sure, t.text)
        self.face.say(painter, self.strong.width(sure), baseline, open_end, t.secondary)

    def _results(self, painter: QPainter, spots: list[Spot], t: theme.Theme) -> None:
        """The finished texts, best first, as far as there is room below the tree."""
        assert self.search is not None
        px, line = theme.px, self.face.height + theme.px(2)
        finished = self.search.finished(self.place)
        y = max((spot.box.bottom() for spot in spots), default=0.0) + px(10)
        if not finished or y + self.tiny.height + line > self.height():
            return
        power = self.search.params.length_penalty
        title = tr("finished, score over length to the power of {power:g}", power=power)
        self.tiny.say(painter, 0, y + self.tiny.ascent, self.tiny.cut(title, self.width()), t.secondary)
        y += self.tiny.height + px(2)
        for candidate in finished:
            if y + line > self.height():
                return
            score = f"{self.search.score(candidate):.4f}"
            baseline = y + self.face.ascent
            self.face.say(painter, px(50), baseline, score, t.good, before=1)
            said = candidate.said.translate(VISIBLE)
            room = self.width() - px(60)
            self.face.say(painter, px(60), baseline, self.face.cut(said, room, Qt.TextElideMode.ElideLeft), t.text)
            y += line

    def moment_at(self, at: QPointF) -> float | None:
        spot = self._spot_at(at)
        return self.search.columns[spot.place].ended if spot is not None and self.search is not None else None

    def _spot_at(self, at: QPointF) -> Spot | None:
        return next((spot for spot in self.spots() if spot.box.contains(at)), None)

    def tip(self, at: QPointF) -> str:
        """The whole path of the candidate there, and what became of it."""
        spot = self._spot_at(at)
        if spot is None or self.search is None:
            return ""
        candidate = spot.candidate
        fates = {
            Fate.LIVE: tr("lives on as beam {n}", n=candidate.branch + 1),
            Fate.FINISHED: tr("finished, with the score {score:.4f}", score=self.search.score(candidate)),
            Fate.PRUNED: tr("pruned"),
        }
        sums = tr("log-probability {sum:.4f} of {tokens:,} tokens", sum=candidate.total, tokens=candidate.length)
        return f"{candidate.said}\n{sums}; {fates[candidate.fate]}"
