"""The figures at a lane's right: painted, so that they take the room there is, a line each or two on one."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy

from app.compare.lanes.tally import (
    Figures,
    finished_words,
    rate_words,
    ttft_words,
    waste_words,
    wasted_words,
)
from app.ui import theme
from app.ui.font_face import FontFace
from app.ui.painted import Painted

WIDTH = 292
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


class LaneFigures(Painted):
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
        self._big, self._ratio_face = map(FontFace, (theme.ui(24, 300), theme.ui(17, 500)))
        self._text, self._small = map(FontFace, (theme.ui(13), theme.ui(12)))
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
        line, gap = round(self._text.height * 1.25), px(6)
        big, second = round(self._big.height), round(self._ratio_face.height)
        foot = px(5) + gap + round(self._small.height)  # the bar, and what it says below it
        tall = self.height() >= big + second + 3 * line + foot + 3 * gap
        compact = not tall and self.height() < big + 3 * line + foot + gap

        y = float(self._big.ascent)
        self._words(painter, self._big, t.text if self._figures.rate is not None else t.faint, 0, y, rate)
        x = self._big.width(rate) + px(8)
        self._words(painter, self._text, t.secondary, x, y, "useful tok/s")
        x += self._text.width("useful tok/s") + px(12)
        if tall:
            x, y = 0.0, y + second + px(3)
        self._words(painter, self._ratio_face, self.color, x, y, ratio)
        x += self._ratio_face.width(ratio) + px(8)
        if x + self._text.width(note) <= self.width():
            self._words(painter, self._text, t.secondary, x, y, note)

        facts = [(wasted, t.text), (ttft, t.text), (waste, t.secondary)]
        if compact:
            facts = [(f"{wasted.replace('of row-steps ', '')}  ·  {ttft}", t.text), (waste, t.secondary)]
        if self._figures.rate is None:
            facts = []
        y += gap if tall else px(3)
        for words, color in facts:
            y += line
            self._words(painter, self._text, color, 0, y, self._text.cut(words, self.width()))

        done = finished if not compact else finished.replace(" finished", "")
        color = t.bad if self._figures.failed else t.secondary
        baseline, thick = self.height() - self._small.descent - 1, px(5)
        if compact:
            wide = self.width() - self._small.width(done) - px(12)
            top = baseline - self._small.middle - thick / 2
            self._words(painter, self._small, color, self.width() - self._small.width(done), baseline, done)
        else:
            wide, top = float(self.width()), self.height() - round(self._small.height) - gap - thick
            self._words(painter, self._small, color, 0, baseline, done)
        self._bar(painter, QRectF(0, top, wide, thick))
        painter.end()

    def _bar(self, painter: QPainter, box: QRectF) -> None:
        t, radius = theme.current(), box.height() / 2
        share = min(1.0, self._figures.finished / self._total) if self._total else 0.0
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.over(t.edge, t.panel))
        painter.drawRoundedRect(box, radius, radius)
        if share:
            painter.setBrush(self.color)
            painter.drawRoundedRect(
                QRectF(box.left(), box.top(), max(2 * radius, share * box.width()), box.height()), radius, radius
            )

    def _words(self, painter: QPainter, face: FontFace, color: QColor, x: float, baseline: float, text: str) -> None:
        painter.setFont(face.font)
        painter.setPen(color)
        face.draw(painter, x, baseline, text)

    def tip(self, at: QPointF) -> str:
        return "\n".join([*(f"{name} = {formula}" for name, formula in TIPS), KIND_WORDS])
