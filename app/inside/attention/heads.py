"""A cell for each layer and head: where in the text its weights are, from the first token to the last."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QImage, QPainter, QPen

from app.inside.attention.history import Seen
from app.inside.shades import shaded
from app.language import tr
from app.ui.look import theme
from app.ui.look.font_face import FontFace
from engine.trace import Array

HIGHEST = 48  # pixels of the design that a row has at most
STRONGEST = 0.95  # of the accent: there are no words on it
GAP = 2  # pixels of the design between cells


@dataclass(frozen=True, slots=True)
class HeadGrid:
    """`weights` `[layers, heads, context]` of one token in a box, below a title and beside the layers' `numbers`. The
    model has so many `heads`; where only their mean is known, there is one cell a layer."""

    weights: Array
    heads: int
    numbers: Sequence[int]
    seen: Seen
    box: QRectF
    face: FontFace

    @property
    def area(self) -> QRectF:
        """Where the cells are."""
        px, layers = theme.px, len(self.weights)
        left, top = self.face.width(tr("layer {n}", n=self.numbers[-1] + 1)) + px(8), 2 * self.face.height + px(5)
        height = min(self.box.height() - top, px(HIGHEST) * layers)
        size = max(1.0, self.box.width() - left), max(1.0, height)
        return QRectF(self.box.left() + left, self.box.top() + top, *size)

    def at(self, where: QPointF) -> Seen | None:
        """The layer and head there; where only the mean is known, the layer alone."""
        area, (layers, heads, _) = self.area, self.weights.shape
        if not area.contains(where):
            return None
        layer = min(int((where.y() - area.top()) / area.height() * layers), layers - 1)
        head = min(int((where.x() - area.left()) / area.width() * heads), heads - 1)
        return Seen(layer, head if heads == self.heads else None)

    def cell(self, layer: int, head: int) -> QRectF:
        area, (layers, heads, _) = self.area, self.weights.shape
        wide, high, gap = area.width() / heads, area.height() / layers, theme.px(GAP)
        if high < 3 * gap:
            gap = 0
        return QRectF(area.left() + head * wide, area.top() + layer * high, wide - gap, high - gap)

    def draw(self, painter: QPainter) -> None:
        t, face, px, area = theme.current(), self.face, theme.px, self.area
        layers, heads, _ = self.weights.shape
        title = face.longest(self.box.width(), *self._titles())
        face.say(painter, self.box.left(), self.box.top() + face.ascent, title, t.secondary)
        wide, high = area.width() / heads, area.height() / layers
        told = heads == self.heads
        across = (
            [tr("head {n}", n=head + 1) for head in range(heads)] if told else [tr("mean of {n} heads", n=self.heads)]
        )
        if told and max(map(face.width, across)) > wide - px(4):
            across = [str(head + 1) for head in range(heads)]
        room = max(1, int(np.ceil((max(map(face.width, across)) + px(2)) / wide)))
        for head in range(0, heads, room):
            face.say(painter, area.left() + head * wide, area.top() - px(3) - face.descent, across[head], t.secondary)
        for layer in range(0, layers, max(1, int(np.ceil(face.height / high)))):
            said = tr("layer {n}", n=self.numbers[layer] + 1)
            face.say(
                painter,
                area.left() - px(6),
                face.baseline(area.top() + layer * high, high),
                said,
                t.secondary,
                before=1,
            )
        strips = self._strips(int(wide * painter.device().devicePixelRatioF()))
        for layer in range(layers):
            for head in range(heads):
                painter.drawImage(self.cell(layer, head), strips, QRect(0, layer * heads + head, strips.width(), 1))
        self._mark(painter)

    def _strips(self, most: int) -> QImage:
        """A line for each cell, with no more fields than it has pixels: of several tokens the most that one gets."""
        flat = self.weights.reshape(-1, self.weights.shape[2])
        fields = max(1, min(flat.shape[1], most))
        begins = np.arange(fields) * flat.shape[1] // fields
        binned = np.maximum.reduceat(flat, begins, axis=1)
        return shaded(np.sqrt(binned / binned.max(1, keepdims=True).clip(1e-9)), STRONGEST)

    def _mark(self, painter: QPainter) -> None:
        layer, head = self.seen
        if layer is not None:
            rect = self.cell(layer, head or 0)
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(theme.current().text, theme.px(1.5)))
            painter.drawRect(rect.adjusted(-1, -1, 1, 1))

    def _titles(self) -> tuple[str, ...]:
        """Which heads are looked at, and how to choose, from the longest on."""
        said = self.seen.words(self.numbers)
        if self.seen.layer is None:
            return (
                tr("this token by layer and head, from the first token to the last: a click chooses one"),
                tr("all layers and heads: a click chooses one"),
                said,
            )
        return tr("{head}: another click chooses all", head=said), said
