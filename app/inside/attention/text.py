"""A text token by token, each on a field as strong as its share."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter, QPen

from app.inside.attention.history import visible
from app.inside.shades import shade
from app.ui.look import theme
from app.ui.look.font_face import FontFace

STRUCK = 0.6  # of the ink
APART, BETWEEN = 1, 3  # pixels of the design between the fields of a line, and between lines


@dataclass(slots=True)
class Spot:
    """A token, and where its words are."""

    token: int
    text: str
    box: QRectF


@dataclass(frozen=True)
class TokenText:
    """`tokens`, the last of which is the one that attends, and what it gives the others, `weights`, but for those that
    are `forgotten`, which are struck. Where not all have room, it is the last that are shown."""

    tokens: Sequence[str]
    weights: Sequence[float]
    box: QRectF
    face: FontFace
    forgotten: range = range(0)

    @cached_property
    def spots(self) -> list[Spot]:
        face, gap = self.face, theme.px(APART)
        high = face.height + theme.px(BETWEEN)
        left, right = self.box.left(), self.box.right()
        lines: list[list[Spot]] = [[]]
        x = left
        for token, text in enumerate(self.tokens):
            said = visible(text)
            blank = face.width(" ") if text.startswith(" ") and x > left else 0.0
            width = face.width(said)
            if x + blank + width > right and x > left:
                lines.append([])
                x, blank = left, 0.0
            lines[-1].append(Spot(token, said, QRectF(x + blank, 0, width, face.height)))
            x += blank + width + gap
            if text.endswith("\n"):
                lines.append([])
                x = left
        shown = [line for line in lines if line][-max(1, int((self.box.height() + theme.px(BETWEEN)) // high)) :]
        for place, line in enumerate(shown):
            for spot in line:
                spot.box.moveTop(self.box.top() + place * high)
        return [spot for line in shown for spot in line]

    @property
    def bottom(self) -> float:
        return max((spot.box.bottom() for spot in self.spots), default=self.box.top())

    def at(self, where: QPointF) -> int:
        """The token there; -1 for none."""
        return next((spot.token for spot in self.spots if spot.box.contains(where)), -1)

    def draw(self, painter: QPainter) -> None:
        t, face, most = theme.current(), self.face, max(max(self.weights, default=0.0), 1e-9)
        round_by = theme.px(2)
        for spot in self.spots:
            painter.setBrush(t.panel)
            if spot.token in self.forgotten:
                self._strike(painter, spot)
                continue
            if spot.token < len(self.weights):
                painter.setPen(t.panel)
                painter.setBrush(shade(sqrt(self.weights[spot.token] / most)))
            else:
                painter.setPen(QPen(t.text, 1))
            painter.drawRoundedRect(spot.box, round_by, round_by)
            face.say(painter, spot.box.left(), spot.box.top() + face.ascent, spot.text, t.text)

    def _strike(self, painter: QPainter, spot: Spot) -> None:
        ink, middle = theme.faded(theme.current().secondary, STRUCK), spot.box.center().y() + theme.px(1)
        self.face.say(painter, spot.box.left(), spot.box.top() + self.face.ascent, spot.text, ink)
        painter.setPen(QPen(ink, theme.px(1)))
        painter.drawLine(QPointF(spot.box.left(), middle), QPointF(spot.box.right() + theme.px(APART), middle))
