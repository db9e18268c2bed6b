"""The forward pass taken apart: one block for the matrix products of all rows, and a lane of attention for each row.

Below the time bar, two lenses open: the block is as wide and the lanes are as long as reading needs, and the bar above
says how long each took.
"""

import math
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter, QPolygonF

from app.inside.columns import whole
from app.inside.step.marks import mark_of, request_color
from app.inside.step.story import StepRow, StepStory, millis, percent
from app.inside.step.time_bar import StepBar
from app.language import digits, tr, trn
from app.plot.inked import inked
from app.plot.patterns import Mark, paint_mark
from app.ui.look import theme
from app.ui.look.font_face import Face

LOWEST, HIGHEST = 64, 190  # of the block and the lanes
THIN, LABELLED, TALLEST = 4, 14, 22  # pixels a lane
LENS = 9
FORMULA = tr("pairs of a token and a position it sees: count · first + count · (count + 1) / 2")


@dataclass(frozen=True, slots=True)
class Lane:
    """The attention of one row, or of the smallest together."""

    rows: tuple[int, ...]
    box: QRectF


class StepFigure:
    """Lays itself out for a width, then draws itself. Boxes are in the coordinates of the painter."""

    title, face, tiny = Face(12, 600), Face(12), Face(11)

    def __init__(self) -> None:
        self.bar = StepBar()

    def lay(self, story: StepStory, left: float, top: float, width: float, spare: float) -> float:
        """Places everything; returns the height. `spare`: what height there is beyond the least."""
        self._story = story
        depth = story.header.depth if story.header is not None else 0
        y = top + self.bar.lay(story.times, left, top, width, depth)
        self._lanes: list[Lane] = []
        self._block = self._area = QRectF()
        if not len(story):
            return y - top
        px, gap = theme.px, theme.px(12)
        y += px(LENS)
        titles = [self.title.width(title) for title, _ in self._titles()]
        needs = [wide + px(6) + self.tiny.width(said[0]) for wide, (_, said) in zip(titles, self._titles())]
        self._two_lines = needs[0] > (width - gap) / 2 or sum(needs) > width - gap
        own = needs[0] if not self._two_lines else titles[0] if sum(titles) <= width - gap else 0
        block = max((width - gap) * 0.4, min(px(128), (width - gap) / 2), math.ceil(own))
        self._heads = (QRectF(left, y, block, 0), QRectF(left + block + gap, y, width - block - gap, 0))
        line = round(self.face.height * 1.15)
        y += (2 if self._two_lines else 1) * line + px(5)
        high = min(max(px(LOWEST) + spare, px(LOWEST)), px(HIGHEST), max(px(LOWEST), len(story) * px(TALLEST)))
        self._block = QRectF(left, y, block, high)
        self._area = QRectF(left + block + gap, y, width - block - gap, high)
        self._lay_lanes(story)
        return y + high - top

    def _lay_lanes(self, story: StepStory) -> None:
        """A lane for each row in their order; where there is no room for all, the smallest share the last one."""
        area, rows = self._area, len(story)
        pitch = min(area.height() / rows, theme.px(TALLEST))
        self._labels = pitch >= theme.px(LABELLED)
        fit = int(area.height() // theme.px(LABELLED if rows <= 8 else THIN))
        if pitch >= theme.px(THIN) or rows <= fit:
            own, rest = list(range(rows)), []
        else:
            foot = theme.px(LABELLED) + theme.px(2)
            fit = max(1, int((area.height() - foot) // theme.px(THIN)))
            pitch = (area.height() - foot) / fit
            order = np.argsort(-story.times.rows.operations, kind="stable")
            own, rest = sorted(order[:fit].tolist()), sorted(order[fit:].tolist())
        for i, row in enumerate(own):
            self._lanes.append(Lane((row,), QRectF(area.left(), area.top() + i * pitch, area.width(), pitch)))
        if rest:
            high = theme.px(LABELLED)
            self._lanes.append(Lane(tuple(rest), QRectF(area.left(), area.bottom() - high, area.width(), high)))

    def _titles(self) -> tuple[tuple[str, tuple[str, ...]], tuple[str, tuple[str, ...]]]:
        """Of the block and of the lanes, each with its figures from their longest wording to their shortest."""
        times = self._story.times
        attention = times.attention_share
        if times.launched:
            one, two = percent(1 - attention), percent(attention)
            matrices = (tr("{share} of the work", share=one), one)
            lanes = (tr("{share} of the work, computed", share=two), tr("{share} of the work", share=two), two)
        else:
            share = times.forward / times.duration if times.duration else 0.0
            matrices = (f"{millis(times.matrices)} · {percent(share * (1 - attention))}", millis(times.matrices))
            known = f"{millis(times.attention)} · {percent(share * attention)}"
            lanes = (f"{known}, {times.origin}", known, millis(times.attention))
        return (tr("Matrix products"), matrices), (tr("Attention"), lanes)

    # -- drawing --------------------------------------------------------------------------------------------------

    def draw(self, painter: QPainter, selected: int) -> None:
        """Draws what was laid out; requests other than the selected one are weaker."""
        self.bar.draw(painter)
        if not self._lanes:
            return
        for segment, head in zip((self.bar.matrices, self.bar.attention), self._heads):
            self._lens(painter, segment, head)
        line = round(self.face.height * 1.15)
        for (title, said), head in zip(self._titles(), self._heads):
            y = head.top() + self.title.ascent
            self.title.say(painter, head.left(), y, self.title.cut(title, head.width()), theme.current().text)
            x = head.left() if self._two_lines else head.left() + self.title.width(title) + theme.px(6)
            room = head.right() - x
            words = next((words for words in said if self.tiny.width(words) <= room), said[-1])
            self.tiny.say(painter, x, y + (line if self._two_lines else 0), words, theme.current().secondary)
        self._draw_block(painter, selected)
        for lane in self._lanes:
            (self._draw_lane if len(lane.rows) == 1 else self._draw_rest)(painter, lane, selected)

    def _lens(self, painter: QPainter, segment: QRectF, head: QRectF) -> None:
        """From a part of the bar to what it is made of."""
        top, bottom = segment.bottom() + 1, head.top() - theme.px(2)
        one, two = QPointF(segment.left(), top), QPointF(segment.right(), top)
        three, four = QPointF(head.right(), bottom), QPointF(head.left(), bottom)
        glass, rim = (theme.faded(theme.current().text, share) for share in (0.08, 0.3))
        with inked(painter, glass, smooth=True):
            painter.drawPolygon(QPolygonF([one, two, three, four]))
        with inked(painter, line=rim, smooth=True):
            painter.drawLine(one, four)
            painter.drawLine(two, three)
        painter.fillRect(QRectF(head.left(), bottom, head.width(), 1), rim)

    def _draw_block(self, painter: QPainter, selected: int) -> None:
        """One rectangle: every row's tokens, a stripe each, as high as they are many."""
        story, box, t = self._story, self._block, theme.current()
        step = story.step
        tokens = (step.count + whole(step.padding, len(story))).astype(np.float64)
        edges = box.top() + np.concatenate([[0.0], np.cumsum(tokens)]) / tokens.sum() * box.height()
        rows = np.searchsorted(edges, np.arange(box.top(), box.bottom()) + 0.5, "right") - 1
        seen = np.unique(np.clip(rows, 0, None))
        for row in seen[seen < len(story)].tolist():
            facts = story.row(row)
            top, bottom = round(edges[row]), round(edges[row + 1])
            stripe = QRectF(box.left(), top, box.width(), max(1, bottom - top))
            color = request_color(facts.request, selected)
            wide = box.width() * facts.padding / (facts.padding + facts.count)
            paint_mark(painter, QRectF(stripe.left(), top, wide, stripe.height()), color, Mark.GREY)
            mark = mark_of(facts)
            paint_mark(painter, stripe.adjusted(wide, 0, 0, 0), color, Mark.SOLID if mark is Mark.CROSS else mark)
            if bottom - top >= 4 and row:
                painter.fillRect(QRectF(stripe.left(), top, stripe.width(), 1), theme.faded(t.panel, 0.6))
        self._plate(painter, box)

    def _plate(self, painter: QPainter, box: QRectF) -> None:
        t, count = theme.current(), self._story.tokens_in + self._story.padding
        words = [trn("{count:,} token at once", "{count:,} tokens at once", count)]
        if self.face.width(words[0]) >= box.width() - theme.px(28):
            words = [trn("{count:,} token", "{count:,} tokens", count), tr("at once")]
        wide = max(self.title.width(w) for w in words) + theme.px(16)
        line = self.title.height
        plate = QRectF(0, 0, wide, line * len(words) + theme.px(8))
        plate.moveCenter(box.center())
        with inked(painter, theme.faded(t.panel, 0.92), smooth=True):
            painter.drawRoundedRect(plate, theme.px(4), theme.px(4))
        with inked(painter, line=theme.faded(t.text, 0.5), smooth=True):
            painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
        for i, word in enumerate(words):
            baseline = plate.top() + theme.px(4) + i * line + self.title.ascent
            self.title.say(painter, plate.center().x(), baseline, word, t.text, before=0.5)

    def _draw_lane(self, painter: QPainter, lane: Lane, selected: int) -> None:
        row, attention = lane.rows[0], self._story.times.rows
        facts, t, box = self._story.row(row), theme.current(), self._bar_of(lane.box)
        most = float(attention.operations.max()) or 1.0
        wide = max(1.0, box.width() * float(attention.operations[row]) / most)
        own = max(1.0, wide * float(attention.useful[row]))
        color, rest = request_color(facts.request, selected), wide - own
        if rest >= 1:
            paint_mark(painter, QRectF(box.left(), box.top(), rest, box.height()), color, Mark.GREY)
        paint_mark(painter, QRectF(box.left() + rest, box.top(), own, box.height()), color, mark_of(facts))
        if self._labels:
            baseline = lane.box.center().y() + self.tiny.middle
            ink = t.text if facts.request == selected else t.secondary
            self.tiny.say(painter, lane.box.left(), baseline, facts.name, ink)
            self.tiny.say(painter, lane.box.right(), baseline, digits(f"{facts.cached + facts.count:,}"), ink, before=1)

    def _bar_of(self, box: QRectF) -> QRectF:
        """Where the bar of a lane may be: between its labels."""
        gap = max(1.0, min(theme.px(4), box.height() * 0.25))
        if not self._labels:
            return QRectF(box.left(), round(box.top()), box.width(), max(1, round(box.height() - gap)))
        names = max(self.tiny.width(self._story.row(lane.rows[0]).name) for lane in self._lanes) + theme.px(6)
        most = int((self._story.step.lies_at + self._story.step.count).max())
        counts = self.tiny.width(digits(f"{most:,}")) + theme.px(6)
        width = max(1.0, box.width() - names - counts)
        return QRectF(box.left() + names, box.top() + gap / 2, width, box.height() - gap)

    def _draw_rest(self, painter: QPainter, lane: Lane, selected: int) -> None:
        attention, box = self._story.times.rows, lane.box
        words = tr("+ {count:,} smaller", count=len(lane.rows))
        baseline = box.center().y() + self.tiny.middle
        self.tiny.say(painter, box.left(), baseline, words, theme.current().secondary)
        x = box.left() + self.tiny.width(words) + theme.px(6)
        shares = attention.shares[list(lane.rows)]
        scale = (box.right() - x) / (float(shares.sum()) or 1.0)
        high = theme.px(8)
        top = round(box.center().y() - high / 2)
        for row, share in zip(lane.rows, shares.tolist()):
            color = request_color(int(self._story.step.request[row]), selected)
            painter.fillRect(QRectF(x, top, max(1.0, share * scale - 0.5), high), color)
            x += share * scale

    # -- asking ---------------------------------------------------------------------------------------------------

    def request_at(self, at: QPointF) -> int:
        """Whose lane or stripe is there; -1 for none."""
        row = self._row_at(at)
        return int(self._story.step.request[row]) if row >= 0 else -1

    def _row_at(self, at: QPointF) -> int:
        for lane in self._lanes:
            if lane.box.contains(at) and len(lane.rows) == 1:
                return lane.rows[0]
        if self._block.contains(at) and self._lanes:
            step = self._story.step
            tokens = step.count + whole(step.padding, len(self._story))
            share = (at.y() - self._block.top()) / self._block.height()
            return min(int(np.searchsorted(np.cumsum(tokens), share * tokens.sum(), "right")), len(self._story) - 1)
        return -1

    def tip(self, at: QPointF) -> str:
        """What is under the pointer, and its formula."""
        if found := self.bar.tip(at):
            return found
        if not self._lanes:
            return ""
        if self._block.contains(at):
            return self._block_tip(self._story.row(self._row_at(at)))
        for lane in self._lanes:
            if lane.box.contains(at):
                return self._lane_tip(lane)
        high = self._block.top() - self._heads[0].top()
        tips = zip(self._heads, self._head_tips())
        return next((tip for head, tip in tips if head.adjusted(0, 0, 0, high).contains(at)), "")

    def _block_tip(self, row: StepRow) -> str:
        tokens = self._story.tokens_in + self._story.padding
        if row.padding:
            words = tr(
                "{request}: {count:,} and {padding:,} of padding of {tokens:,} tokens",
                request=row.name,
                count=row.count,
                padding=row.padding,
                tokens=tokens,
            )
        else:
            words = tr("{request}: {count:,} of {tokens:,} tokens", request=row.name, count=row.count, tokens=tokens)
        return "\n".join((words, tr("Every weight is read once and used for all of them.")))

    def _head_tips(self) -> tuple[str, str]:
        times = self._story.times
        if times.measured:
            how = tr("attention: measured around each layer's attention, its writing of K and V included")
        else:
            how = tr(
                "attention's share of the operations, computed: 4 · heads · head size · pairs in each layer, against "
                "2 · weights · tokens"
            )
        products = tr("Matrix products = forward − attention; what lies between them (norms, activations) included")
        rows = tr("Its division among rows is computed, by operations, which grow with {formula}", formula=FORMULA)
        return f"{products}\n{how}", f"{how}\n{rows}"

    def _lane_tip(self, lane: Lane) -> str:
        times = self._story.times
        share = float(times.rows.shares[list(lane.rows)].sum())
        if len(lane.rows) > 1:
            lines = [tr("the {count:,} rows with the least attention", count=len(lane.rows))]
        else:
            facts = self._story.row(lane.rows[0])
            words = tr(
                "{request}: {kind}, {count:,} over {positions:,} positions",
                request=facts.name,
                kind=facts.kind_words,
                count=facts.count,
                positions=facts.cached + facts.count,
            )
            lines = [words, digits(f"{facts.attended:,} {FORMULA}")]
            useful = float(times.rows.useful[lane.rows[0]])
            if useful < 1:
                vain = percent(1 - useful)
                lines.append(tr("computed as wide as the longest row: {share} of it, in grey, in vain", share=vain))
        what = tr("{share} of attention (computed)", share=percent(share))
        if not times.launched:
            what = f"{millis(share * times.attention)}, {what}"
        return "\n".join([*lines, what])
