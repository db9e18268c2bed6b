"""A line for each token of an answer: what it gave every token before it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter

from app.inside.attention.history import GONE
from app.inside.shades import shaded
from app.language import tr
from app.ui.look import theme
from app.ui.look.font_face import FontFace
from engine.trace import Array

HIGHEST, LEAST, WIDEST = 14, 2, 12  # pixels of the design: a line at most and at least, a token at most
STRONGEST = 0.95  # of the accent: there are no words on it


def lines_that_fit(height: float) -> int:
    """How many lines have room."""
    return max(1, int(height // theme.px(LEAST)))


@dataclass(frozen=True, slots=True)
class AttentionLines:
    """`weights` `[tokens, context]` of some `tokens` of an answer in a box, below a title, `GONE` where one was
    forgotten by then; the first `prompt` of the context were asked."""

    tokens: Sequence[int]
    weights: Array
    prompt: int
    box: QRectF
    face: FontFace

    @property
    def area(self) -> QRectF:
        """Where the lines are."""
        lines, context = self.weights.shape
        top = 2 * self.face.height + theme.px(5)
        height = min(max(1.0, self.box.height() - top), lines * theme.px(HIGHEST))
        return QRectF(self.box.left(), self.box.top() + top, min(self.box.width(), context * theme.px(WIDEST)), height)

    def at(self, where: QPointF) -> tuple[int, int] | None:
        """The line and the token of the context there."""
        area, (lines, context) = self.area, self.weights.shape
        if not area.contains(where):
            return None
        line = min(int((where.y() - area.top()) / area.height() * lines), lines - 1)
        return line, min(int((where.x() - area.left()) / area.width() * context), context - 1)

    def _forgotten(self, painter: QPainter) -> None:
        """What is no longer there is a gap, not something that is given nothing."""
        area, (lines, context) = self.area, self.weights.shape
        wide, high = area.width() / context, area.height() / lines
        for line, gone in enumerate(self.weights == GONE):
            places = np.flatnonzero(gone)
            if len(places):
                box = QRectF(area.left() + places[0] * wide, area.top() + line * high, len(places) * wide, high)
                painter.fillRect(box, theme.current().panel)

    def draw(self, painter: QPainter) -> None:
        t, face, px, area = theme.current(), self.face, theme.px, self.area
        title = face.longest(
            self.box.width(),
            tr("the answer until here, a line each token: what it attends to"),
            tr("the answer, a line each token"),
            tr("the answer"),
        )
        face.say(painter, self.box.left(), self.box.top() + face.ascent, title, t.secondary)
        most = self.weights.max(1, keepdims=True).clip(1e-9)
        painter.drawImage(area, shaded(np.sqrt(self.weights.clip(0) / most), STRONGEST))
        self._forgotten(painter)
        context = self.weights.shape[1]
        border, above = area.left() + area.width() * self.prompt / context, area.top() - px(3) - face.descent
        prompt, answer = tr("prompt"), tr("answer")
        if face.width(prompt) < border - area.left() - px(4):
            face.say(painter, area.left(), above, prompt, t.secondary)
        if self.prompt < context:
            painter.fillRect(
                QRectF(border - 0.5, area.top() - face.height, 1, area.height() + face.height), t.secondary
            )
            if face.width(answer) < self.box.right() - border - px(4):
                face.say(painter, border + px(4), above, answer, t.secondary)
