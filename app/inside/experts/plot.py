"""How many of the experts a step activates, by how many tokens it has: a dot a step, and what chance would give."""

from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen, QPolygonF

from app.inside.experts.history import ExpertHistory
from app.language import tr
from app.plot import axes
from app.ui.look import theme
from app.ui.look.font_face import FontFace
from engine.trace import Array

NEAR = 14  # pixels of the design
TICKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
DOT, CURSOR = 6, 10  # pixels of the design


@dataclass(frozen=True, slots=True)
class ActivationPlot:
    """The steps up to `place` in a box; the one at `place` is marked."""

    history: ExpertHistory
    place: int
    box: QRectF
    face: FontFace

    @property
    def area(self) -> QRectF:
        px, face = theme.px, self.face
        left, top = face.width("100 %") + px(8), face.height + px(6)
        return QRectF(
            self.box.left() + left,
            self.box.top() + top,
            max(1.0, self.box.width() - left - px(6)),
            max(1.0, self.box.height() - top - 2 * face.height - px(6)),
        )

    @property
    def _most(self) -> int:
        """Tokens of the axis' end."""
        most = int(self.history.tokens[: self.place + 1].max(initial=1))
        return next((tick for tick in TICKS if tick >= most), most)

    def _x(self, tokens: Array | float) -> Array:
        share = np.log2(np.maximum(tokens, 1)) / max(np.log2(self._most), 1.0)
        return self.area.left() + share * self.area.width()

    def _y(self, share: Array | float) -> Array:
        return self.area.bottom() - np.asarray(share) * self.area.height()

    def _dots(self) -> tuple[Array, Array, Array]:
        """Where they are, and the place of a step of each."""
        tokens, activated, places = self.history.sizes_until(self.place)
        whole = max(1, len(self.history.layers) * self.history.experts)
        return self._x(tokens), self._y(activated / whole), places

    def draw(self, painter: QPainter) -> None:
        t, px, face, area, history = theme.current(), theme.px, self.face, self.area, self.history
        title = tr("experts that a step activates, by its tokens")
        face.say(painter, self.box.left(), self.box.top() + face.ascent, face.cut(title, self.box.width()), t.secondary)
        painter.fillRect(QRectF(area.left(), area.bottom(), area.width(), 1), t.hairline)
        painter.fillRect(QRectF(area.left(), area.top(), 1, area.height()), t.hairline)
        up = [(float(self._y(share)), f"{100 * share:.0f} %") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
        for y, _ in up:
            painter.fillRect(QRectF(area.left() - px(3), y, px(3), 1), t.secondary)
        axes.side(painter, face, up, area.left() - px(6), apart=face.height)
        across = [(float(self._x(tick)), f"{tick:,}") for tick in TICKS if tick <= self._most]
        for x, _ in across:
            painter.fillRect(QRectF(x, area.bottom(), 1, px(3)), t.secondary)
        axes.foot(painter, face, across, area.bottom() + px(5) + face.ascent, area.left(), area.right(), apart=px(8))
        tokens = np.geomspace(1, self._most, 64)
        curve = zip(self._x(tokens).tolist(), self._y(history.by_chance(tokens)).tolist())
        painter.setPen(QPen(t.secondary, theme.stroke(1.2), Qt.PenStyle.DashLine))
        painter.drawPolyline(QPolygonF([QPointF(x, y) for x, y in curve]))
        self._legend(painter, area.bottom() + px(6) + face.height + face.ascent)
        xs, ys, places = self._dots()
        self._dot(painter, xs, ys, DOT, 0.55)
        here = np.flatnonzero(places == self.place)
        if len(here):
            painter.setPen(QPen(t.text, theme.stroke(1.6)))
            painter.setBrush(t.accent)
            radius = px(CURSOR) / 2
            painter.drawEllipse(QPointF(float(xs[here[0]]), float(ys[here[0]])), radius, radius)

    def _dot(self, painter: QPainter, xs: Array, ys: Array, size: float, strength: float) -> None:
        pen = QPen(theme.faded(theme.current().accent, strength), theme.px(size))
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        painter.setPen(pen)
        painter.drawPoints(QPolygonF([QPointF(x, y) for x, y in zip(xs.tolist(), ys.tolist())]))

    def _legend(self, painter: QPainter, baseline: float) -> None:
        t, px, face, x = theme.current(), theme.px, self.face, self.box.left()
        middle = baseline - face.cap / 2
        self._dot(painter, np.array([x + px(4)]), np.array([middle]), DOT, 0.8)
        step, chance, axis = tr("a step"), tr("if all were as likely"), tr("tokens of a step")
        face.say(painter, x + px(12), baseline, step, t.secondary)
        x += px(24) + face.width(step)
        if x + px(24) + face.width(chance) < self.area.right() - face.width(axis) - px(12):
            painter.setPen(QPen(t.secondary, theme.stroke(1.2), Qt.PenStyle.DashLine))
            painter.drawLine(QPointF(x, middle), QPointF(x + px(18), middle))
            face.say(painter, x + px(24), baseline, chance, t.secondary)
        face.say(painter, self.area.right(), baseline, axis, t.secondary, before=1)

    def place_at(self, where: QPointF) -> int:
        """The place of the step whose dot is nearest; -1 where none is near."""
        xs, ys, places = self._dots()
        if not len(xs):
            return -1
        distances = np.hypot(xs - where.x(), ys - where.y())
        nearest = int(distances.argmin())
        return int(places[nearest]) if distances[nearest] <= theme.px(NEAR) else -1
