"""Shapes of one fill and one line, and words that can be read on anything."""

from collections.abc import Iterator
from contextlib import contextmanager

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPaintEngine, QPainter, QPen

from app.ui.look import theme
from app.ui.look.font_face import FontFace


@contextmanager
def inked(
    painter: QPainter, fill: QColor | None = None, line: QColor | QPen | None = None, *, smooth: bool = False
) -> Iterator[None]:
    """What is drawn meanwhile has this fill and this line, or none; `smooth`: with antialiasing where there is none."""
    painter.save()
    if smooth:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen if line is None else QPen(line, 1) if isinstance(line, QColor) else line)
    painter.setBrush(Qt.BrushStyle.NoBrush if fill is None else fill)
    yield
    painter.restore()


def of_vectors(painter: QPainter) -> bool:
    """Whether it writes a drawing, which has no pixels."""
    engine = painter.paintEngine()
    return engine is not None and engine.type() in (QPaintEngine.Type.SVG, QPaintEngine.Type.Pdf)


def mixed(color: QColor, share: float) -> QColor:
    """So much of a colour over the panel's ground."""
    return theme.over(theme.faded(color, share), theme.current().panel)


def plate_of(face: FontFace, x: float, baseline: float, words: str) -> QRectF:
    """The ground of `say_on_plate`."""
    margin = theme.px(3)
    return QRectF(x - margin, baseline - face.ascent, face.width(words) + 2 * margin, face.height)


def say_on_plate(
    painter: QPainter, face: FontFace, x: float, baseline: float, words: str, color: QColor | None = None
) -> None:
    """Words on a ground of the panel's, quiet ones where no colour is given."""
    t = theme.current()
    painter.fillRect(plate_of(face, x, baseline, words), theme.faded(t.panel, 0.82))
    face.say(painter, x, baseline, words, color or t.secondary)
