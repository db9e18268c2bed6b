"""A light on what is spoken of: the rest of the pages is dimmed a little."""

from PySide6.QtCore import QPoint, QRect, QRectF, Qt, QVariantAnimation
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QScrollArea, QWidget

from app.ui.look import theme
from app.ui.look.motion import moving

DIM = {True: 80, False: 45}  # how dark what is not lit becomes, of 255, in the dark theme and the light one
MOVE_MS = 300
ROUND, AROUND = 6, 6  # pixels of the design: corners, and room around what is lit


def in_sight(widget: QWidget, over: QWidget) -> QRect:
    """Where a widget stands on `over`, with a little room around it, as far as no scrolled area hides it."""
    around = theme.px(AROUND)
    rect = QRect(widget.mapTo(over, QPoint(0, 0)), widget.size()).adjusted(-around, -around, around, around)
    parent = widget.parentWidget()
    while parent is not None and parent is not over:
        if isinstance(parent, QScrollArea):
            port = parent.viewport()
            rect &= QRect(port.mapTo(over, QPoint(0, 0)), port.size())
        parent = parent.parentWidget()
    return rect & over.rect()


def reveal(widget: QWidget) -> None:
    """Scrolls to a widget, where it stands on a scrolled area."""
    parent = widget.parentWidget()
    while parent is not None:
        if isinstance(parent, QScrollArea):
            parent.ensureWidgetVisible(widget, 0, 0)
        parent = parent.parentWidget()


class Spotlight(QWidget):
    """Lies over its parent, and is in nobody's way. Where nothing is to move, it jumps."""

    def __init__(self, over: QWidget) -> None:
        super().__init__(over)
        self._over = over
        self.setObjectName("spotlight")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.target = QRect()
        self.lit = QRect()
        self._moving = QVariantAnimation(self, duration=MOVE_MS)
        self._moving.valueChanged.connect(self._on_moved)
        self.hide()

    def light(self, target: QRect) -> None:
        """Lights this part of the parent; an empty one lights all of it."""
        if self.geometry() != self._over.rect():
            self.setGeometry(self._over.rect())
        if target.isEmpty():
            self.put_out()
        elif target != self.target:
            from_nothing = self.target.isEmpty()
            self.target = target
            self._moving.stop()
            if from_nothing or not moving():
                self._on_moved(target)
            else:
                self._moving.setStartValue(self.lit)
                self._moving.setEndValue(target)
                self._moving.start()
        if not self.target.isEmpty():
            self.show()
            self.raise_()

    def put_out(self) -> None:
        self._moving.stop()
        self.target = self.lit = QRect()
        self.hide()

    def _on_moved(self, lit: QRect) -> None:
        self.lit = lit
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, tokens = QPainter(self), theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        lit, dimmed, corner = QRectF(self.lit).adjusted(1, 1, -1, -1), QPainterPath(), theme.px(ROUND)
        dimmed.addRect(QRectF(self.rect()))
        hole = QPainterPath()
        hole.addRoundedRect(lit, corner, corner)
        painter.fillPath(dimmed - hole, QColor(0, 0, 0, DIM[tokens.dark]))
        painter.setPen(QPen(tokens.accent, max(2.0, theme.stroke())))
        painter.drawPath(hole)
        painter.end()
