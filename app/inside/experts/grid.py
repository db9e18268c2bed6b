"""A grid of layers by experts, each cell as strong as what it was sent, with its number where there is room."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter

from app.inside.shades import shade, shaded
from app.language import tr
from app.ui.look import theme
from app.ui.look.font_face import FontFace
from engine.trace import Array

HIGHEST = 30  # pixels of the design that a row has at most
APART = 6  # pixels of the design from which on cells lie apart


@dataclass(frozen=True, slots=True)
class Grid:
    """`values` `[layers, experts]` in a box, below a title and beside the layers' numbers. `words` of a cell's value;
    `beside` is said at the right of each row, and above some experts, from one to before another, what `parts` say."""

    title: str
    values: Array
    layers: Sequence[int]
    words: Callable[[float], str]
    beside: Sequence[str]
    box: QRectF
    face: FontFace
    parts: Sequence[tuple[int, int, str]] = ()

    @property
    def area(self) -> QRectF:
        """Where the cells are."""
        px, top = theme.px, self.face.height * (2 if self.parts else 1) + theme.px(3)
        left = self.face.width(tr("layer {n}", n=max(self.layers) + 1)) + px(8)
        right = max(map(self.face.width, self.beside), default=0) + px(8)
        height = min(self.box.height() - top, px(HIGHEST) * len(self.layers))
        width = max(1.0, self.box.width() - left - right)
        return QRectF(self.box.left() + left, self.box.top() + top, width, max(1.0, height))

    def at(self, where: QPointF) -> tuple[int, int] | None:
        """The place of the layer and the expert there."""
        area, (layers, experts) = self.area, self.values.shape
        if not area.contains(where):
            return None
        layer = int((where.y() - area.top()) / area.height() * layers)
        expert = int((where.x() - area.left()) / area.width() * experts)
        return min(layer, layers - 1), min(expert, experts - 1)

    def draw(self, painter: QPainter) -> None:
        t, face, px = theme.current(), self.face, theme.px
        title = face.cut(self.title, self.box.width())
        face.say(painter, self.box.left(), self.box.top() + face.ascent, title, t.secondary)
        area, (layers, experts) = self.area, self.values.shape
        wide, high = area.width() / experts, area.height() / layers
        if min(wide, high) >= px(APART):
            self._cells(painter, area, wide, high)
        else:
            painter.drawImage(area, shaded(self.values / max(float(self.values.max()), 1e-9)))
        self._parts(painter, area, wide)
        every = max(1, int(np.ceil(face.height / high)))
        for row in range(0, layers, every):
            baseline = face.baseline(area.top() + row * high, high)
            title = tr("layer {n}", n=self.layers[row] + 1)
            face.say(painter, area.left() - px(6), baseline, title, t.secondary, before=1)
            if self.beside:
                face.say(painter, area.right() + px(5), baseline, self.beside[row], t.secondary)

    def _parts(self, painter: QPainter, area: QRectF, wide: float) -> None:
        """What some of the experts have in common, and a line between these and the next."""
        t, face, px = theme.current(), self.face, theme.px
        for begin, end, words in self.parts:
            left, right = area.left() + begin * wide, area.left() + end * wide
            said = face.cut(words, right - left - px(8))
            face.say(painter, left + px(3 if begin else 0), area.top() - px(3) - face.descent, said, t.secondary)
            if begin:
                line = QRectF(left - px(1.5), area.top() - face.height, px(1), area.height() + face.height)
                painter.fillRect(line, t.secondary)

    def _cells(self, painter: QPainter, area: QRectF, wide: float, high: float) -> None:
        t, face, gap = theme.current(), self.face, theme.px(2)
        highest = float(self.values.max())
        roomy = high - gap >= face.cap + theme.px(4) and wide - gap >= face.width(self.words(highest)) + theme.px(2)
        for row, values in enumerate(self.values.tolist()):
            for expert, value in enumerate(values):
                box = QRectF(area.left() + expert * wide, area.top() + row * high, wide - gap, high - gap)
                painter.fillRect(box, shade(value / highest if highest else 0.0))
                if roomy and value:
                    said, baseline = self.words(value), face.baseline(box.top(), box.height())
                    face.say(painter, box.center().x(), baseline, said, t.text, before=0.5)
