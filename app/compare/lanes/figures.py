"""The figures at a lane's right: painted, so that they take the room there is, a line each or two on one."""

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QSizePolicy

from app.compare.lanes.tally import (
    Figures,
    finished_words,
    rate_words,
    short_finished_words,
    short_waste_words,
    short_wasted_words,
    ttft_words,
    waste_words,
    wasted_words,
)
from app.language import tr
from app.plot.marks import lane_color
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted
from engine.trace import MEASURES

WIDTH, STAGE_WIDTH = 292, 216
LOSS = 0.95  # a ratio below it looks like none
RATE = tr("useful tok/s")
TIPS = (
    (RATE, tr("Σ output tokens / D, D from the first submit to the last token so far")),
    (tr("computed rows wasted"), tr("(held rows + rows whose every token was thrown away) / rows of all steps")),
    (tr("drafts wasted"), tr("drafted tokens that were thrown away / drafted tokens")),
    (tr("computed again"), tr("tokens computed before, in rows that said something new / computed tokens")),
    (tr("first token p95"), tr("TTFT p95: 95th percentile of first token − submit, over requests")),
    (tr("KV waste"), MEASURES["kv.waste"].formula),
)
KIND_WORDS = tr(
    "reserved: kept for tokens still to come · internal: held, can never be filled · "
    "external: free, but of no use to the head of the queue"
)


class LaneFigures(Painted):
    """The ratio is the rate against the first lane's, where there is something to compare with. What was stopped is
    not compared: its first moments say nothing of the rest."""

    hint, least = (WIDTH, 160), (WIDTH, 84)
    big, second, text, small = Face(24, 300), Face(17, 500), Face(13), Face(12)
    large, strong = Face(22, 650), Face(15, 650)  # on a stage

    def __init__(self, lane: int) -> None:
        super().__init__("lane_figures", tr("Figures"))
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        self.lane = lane
        self._figures, self._total = Figures(), 0
        self._ratio: float | None = None
        self._notes: tuple[str, ...] = ("",)  # that stand beside the ratio: the first of them that fits
        self._said: tuple[str, ...] = ()
        self._say()

    def show_figures(self, figures: Figures, total: int, base: Figures | None) -> None:
        """`base`: the first lane's figures; its own in the first lane; None where it runs alone."""
        self._figures, self._total, self._ratio, self._notes = figures, total, None, ("",)
        stopped = base is not None and (figures.cancelled or base.cancelled)
        if base is not None and figures.rate and base.rate and not stopped:
            self._ratio, self._notes = figures.rate / base.rate, (tr("the first lane"),)
            if not self.lane:
                self._notes = (tr("baseline"),)
            elif min(figures.ended, base.ended) < total:
                self._notes = tr("the first lane, so far"), tr("so far")
        self._say()

    def _say(self) -> None:
        f = self._figures
        said = (
            rate_words(f.rate),
            f"{self._ratio:.1f} ×" if self._ratio is not None else "",
            self._notes[0],
            wasted_words(f),
            ttft_words(f),
            waste_words(f),
            finished_words(f, self._total),
        )
        if said != self._said:
            self._said = said
            rate = tr("{rate} useful tokens a second", rate=said[0])
            self.setAccessibleDescription(", ".join((rate, *filter(None, said[1:]))))
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(STAGE_WIDTH), theme.px(48)) if theme.presenting() else super().sizeHint()

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint() if theme.presenting() else super().minimumSizeHint()

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        if theme.presenting():
            self._paint_stage(painter)
            return
        t, px = theme.current(), theme.px
        rate, ratio, _, wasted, ttft, waste, finished = self._said
        line, gap = round(self.text.height * 1.25), px(6)
        big, second = round(self.big.height), round(self.second.height)
        foot = px(5) + gap + round(self.small.height)  # the bar, and what it says below it
        tall = self.height() >= big + second + 3 * line + foot + 3 * gap
        compact = not tall and self.height() < big + 3 * line + foot + gap

        y = float(self.big.ascent)
        self.big.say(painter, 0, y, rate, t.text if self._figures.rate is not None else t.faint)
        x = self.big.width(rate) + px(8)
        self.text.say(painter, x, y, RATE, t.secondary)
        x += self.text.width(RATE) + px(12)
        if tall:
            x, y = 0.0, y + second + px(3)
        self.second.say(painter, x, y, ratio, self._ratio_color())
        x += self.second.width(ratio) + px(8)
        self.text.say(painter, x, y, self._note(x), t.secondary)

        if self.text.width(waste) > self.width():
            waste = short_waste_words(self._figures)
        facts = [(wasted, t.text), (ttft, t.text), (waste, t.secondary)]
        if compact:
            facts = [(f"{short_wasted_words(self._figures)}  ·  {ttft}", t.text), (waste, t.secondary)]
        if self._figures.rate is None:
            facts = []
        y += gap if tall else px(3)
        for words, color in facts:
            y += line
            self.text.say(painter, 0, y, self.text.cut(words, self.width()), color)

        done = short_finished_words(self._figures, self._total) if compact else finished
        taken = self.small.width(done)
        baseline, thick = self.height() - self.small.descent - 1, px(5)
        if compact:
            left = self.width() - taken
            wide, top = left - px(12), baseline - self.small.middle - thick / 2
        else:
            left, wide, top = 0.0, self.width(), self.height() - round(self.small.height) - gap - thick
        self.small.say(painter, left, baseline, done, t.bad if self._figures.failed else t.secondary)
        self._bar(painter, QRectF(0, top, wide, thick))

    def _paint_stage(self, painter: QPainter) -> None:
        """What can be read from the last row: the rate, the ratio, how many are finished."""
        t, px, f = theme.current(), theme.px, self._figures
        rate, ratio, *_ = self._said
        done = tr("{n:,} of {all:,}", n=f.finished, all=self._total)
        foot, line = round(self.small.height), round(1.1 * self.text.height)
        tall = self.height() >= self.large.height + line + foot + px(6)
        face = self.large if tall else self.strong
        y = float(face.ascent)
        face.say(painter, 0, y, rate, t.text)
        self.text.say(painter, face.width(rate) + px(6), y, tr("tok/s"), t.secondary)
        if ratio and tall:
            y += line + px(3)
            self.strong.say(painter, 0, y, ratio, self._ratio_color())
            x = self.strong.width(ratio) + px(6)
            self.text.say(painter, x, y, self._note(x), t.secondary)
        elif ratio:
            self.strong.say(painter, self.width(), y, ratio, self._ratio_color(), before=1)
        baseline, thick, wide = self.height() - self.small.descent - 1, px(6), self.small.width(done)
        self.small.say(painter, self.width(), baseline, done, t.bad if f.failed else t.secondary, before=1)
        top = baseline - self.small.middle - thick / 2
        self._bar(painter, QRectF(0, top, max(1.0, self.width() - wide - px(8)), thick))

    def _note(self, x: float) -> str:
        return next((each for each in self._notes if x + self.text.width(each) <= self.width()), "")

    def _ratio_color(self) -> QColor:
        """A loss is quiet, whatever the lane's colour."""
        t = theme.current()
        return t.text if self._ratio is None or self._ratio >= LOSS else t.secondary

    def _bar(self, painter: QPainter, box: QRectF) -> None:
        t, radius = theme.current(), box.height() / 2
        share = min(1.0, self._figures.finished / self._total) if self._total else 0.0
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.over(t.edge, t.panel))
        painter.drawRoundedRect(box, radius, radius)
        if share:
            painter.setBrush(lane_color(self.lane))
            box.setWidth(max(2 * radius, share * box.width()))
            painter.drawRoundedRect(box, radius, radius)

    def tip(self, at: QPointF) -> str:
        return "\n".join([waste_words(self._figures), *(f"{name} = {formula}" for name, formula in TIPS), KIND_WORDS])
