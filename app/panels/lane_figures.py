"""The figures at a lane's right: painted, so that they take the room there is, a line each or two on one."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app import theme
from app.panels.ink import Ink
from app.panels.lane_tally import (
    Figures,
    finished_words,
    rate_words,
    ttft_words,
    waste_words,
    wasted_words,
)

WIDTH = 276
TIPS = (
    ("useful tok/s", "Σ output tokens / D, D from the first submit to the last token so far"),
    ("row-steps wasted", "(held rows + rows whose every token was thrown away) / row-steps"),
    ("TTFT p95", "95th percentile of first token − submit, over requests"),
    ("KV waste", "mean over time of (reserved + internal + external) / (used + reserved + internal + external) tokens"),
)
KIND_WORDS = (
    "reserved: kept for tokens still to come · internal: held, can never be filled · "
    "external: free, but of no use to the head of the queue"
)


class LaneFigures(QWidget):
    """`ratio` is the rate against the first lane's; None where there is nothing to compare with."""

    def __init__(self, color: QColor) -> None:
        super().__init__()
        self.setObjectName("lane_figures")
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        self._figures, self._total, self._note = Figures(), 0, ""
        self._ratio: float | None = None
        self._said: tuple[str, ...] = ()
        self.color = color
        self.restyle()
        self._say()

    def restyle(self) -> None:
        self._big, self._ratio_ink = Ink(theme.ui(24, 300)), Ink(theme.ui(17, 500))
        self._text, self._small = Ink(theme.ui(13)), Ink(theme.ui(12))
        self.updateGeometry()
        self.update()

    def show_figures(self, figures: Figures, total: int, ratio: float | None, note: str) -> None:
        """`note` stands beside the ratio: "baseline", "the first lane"."""
        self._figures, self._total, self._ratio, self._note = figures, total, ratio, note
        self._say()

    def _say(self) -> None:
        f = self._figures
        said = (
            rate_words(f.rate),
            f"{self._ratio:.1f} ×" if self._ratio is not None else "",
            self._note,
            wasted_words(f),
            ttft_words(f),
            waste_words(f),
            finished_words(f, self._total),
        )
        if said != self._said:
            self._said = said
            self.setAccessibleName("Figures")
            self.setAccessibleDescription(f"{said[0]} useful tokens a second, " + ", ".join(s for s in said[1:] if s))
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(WIDTH), theme.px(160))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(WIDTH), theme.px(84))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        t, px = theme.current(), theme.px
        rate, ratio, note, wasted, ttft, waste, finished = self._said
        line = round(self._text.height * 1.3)
        foot = px(5) + px(6) + round(self._small.height)  # progress bar, gap, words
        big, second = round(self._big.height), round(self._ratio_ink.height)
        tall = self.height() >= big + second + 3 * line + foot + px(12)
        roomy = self.height() >= big + 3 * line + foot + px(8)

        y = float(self._big.ascent)
        painter.setFont(self._big.font)
        painter.setPen(t.text)
        self._big.draw(painter, 0, y, rate)
        x = self._big.width(rate) + px(8)
        self._words(painter, self._text, t.secondary, x, y, "useful tok/s")
        x += self._text.width("useful tok/s") + px(12)
        if tall:
            x, y = 0.0, y + second + px(4)
        if ratio:
            self._words(painter, self._ratio_ink, self.color, x, y, ratio)
            x += self._ratio_ink.width(ratio) + px(8)
        if note and x + self._text.width(note) <= self.width():
            self._words(painter, self._text, t.secondary, x, y, note)

        if tall or roomy:
            facts = [(wasted, t.text), (ttft, t.text), (waste, t.secondary)]
        else:
            facts = [(f"{wasted}  ·  {ttft}", t.text), (waste, t.secondary)]
        y += self._text.height * 0.35
        room = self.height() - foot - y
        step = min(line, room / len(facts))
        for words, color in facts:
            y += step
            if y <= self.height() - foot + px(2):
                self._words(painter, self._text, color, 0, y, self._text.cut(words, self.width()))

        thick, radius = px(5), px(2.5)
        top = self.height() - round(self._small.height) - px(6) - thick
        share = min(1.0, self._figures.finished / self._total) if self._total else 0.0
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.over(t.edge, t.panel))
        painter.drawRoundedRect(QRectF(0, top, self.width(), thick), radius, radius)
        if share:
            painter.setBrush(self.color)
            painter.drawRoundedRect(QRectF(0, top, max(thick, share * self.width()), thick), radius, radius)
        color = t.bad if self._figures.failed else t.secondary
        self._words(painter, self._small, color, 0, self.height() - self._small.descent, finished)
        painter.end()

    def _words(self, painter: QPainter, ink: Ink, color: QColor, x: float, baseline: float, text: str) -> None:
        painter.setFont(ink.font)
        painter.setPen(color)
        ink.draw(painter, x, baseline, text)

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            lines = [f"{name} = {formula}" for name, formula in TIPS]
            QToolTip.showText(event.globalPos(), "\n".join([*lines, KIND_WORDS]), self)
            return True
        return super().event(event)
