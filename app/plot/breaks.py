"""The breaks in an axis of seconds where idle time is folded: two jagged lines, and how long it was."""

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter, QPolygonF

from app.language import digits, tr
from app.plot.folds import WIDTH, Folds
from app.plot.inked import inked
from app.ui.look import theme
from app.ui.look.font_face import FontFace
from app.words import left_words

LEAST = 9  # pixels of the design that a break is wide
TOOTH = 4  # pixels of the design
Tick = tuple[float, str]  # where it is in pixels, and its words


@dataclass(frozen=True, slots=True)
class Break:
    """From where to where it is in pixels, and the seconds that are folded."""

    left: float
    right: float
    begin: float
    end: float

    @property
    def words(self) -> str:
        """ "12 s idle"."""
        seconds = self.end - self.begin
        return tr("{time} idle", time=f"{seconds:.1f} s" if seconds < 9.95 else left_words(seconds))

    @property
    def tip(self) -> str:
        nothing = tr("no request was waiting or running")
        return digits(f"{self.words}, {self.begin:,.2f}–{self.end:,.2f} s\n{nothing}")


def breaks_in(folds: Folds, begin: float, end: float, area: QRectF) -> list[Break]:
    """The folds in this part of the axis, which takes the width of `area`."""
    scale, least, places = area.width() / (end - begin), theme.px(LEAST), folds.places
    found = []
    for i in folds.in_sight(begin, end).tolist():
        middle = area.left() + (places[i] + WIDTH / 2 - begin) * scale
        half = max(least, WIDTH * scale) / 2
        found.append(Break(middle - half, middle + half, float(folds.begins[i]), float(folds.ends[i])))
    return found


def draw_breaks(painter: QPainter, breaks: list[Break], area: QRectF, bottom: int, top: int = 0) -> None:
    """Each from `top` to `bottom`."""
    t, tooth = theme.current(), theme.px(TOOTH)
    for each in breaks:
        left, right = max(each.left, area.left()), min(each.right, area.right())
        painter.fillRect(QRectF(left, top, max(0.0, right - left), bottom - top), t.panel)
        for x in (each.left, each.right):
            if area.left() <= x <= area.right():
                heights = range(top, bottom + tooth, tooth)
                teeth = [QPointF(x + (-1) ** i * tooth / 4, min(y, bottom)) for i, y in enumerate(heights)]
                with inked(painter, line=t.secondary, smooth=True):
                    painter.drawPolyline(QPolygonF(teeth))


def with_breaks(ticks: list[Tick], breaks: list[Break], area: QRectF, face: FontFace, apart: float) -> list[Tick]:
    """The axis' words and those of the breaks, from left to right: the longest breaks first, then what has room."""
    longest = sorted(breaks, key=lambda each: each.begin - each.end)
    named = [(min(max((b.left + b.right) / 2, area.left()), area.right()), b.words) for b in longest]
    kept: list[Tick] = []
    for x, words in (*named, *ticks):
        if all(abs(x - other) >= (face.width(words) + face.width(said)) / 2 + apart for other, said in kept):
            kept.append((x, words))
    return sorted(kept)
