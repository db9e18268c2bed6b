"""A dock that looks like a card: its title bar is a thin strip that shows a grip and a close button when pointed at."""

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QEnterEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QDockWidget, QFrame, QHBoxLayout, QSizePolicy, QWidget

from app.language import tr
from app.ui.layout.boxes import column, fill, named, panel
from app.ui.look import theme


class _Close(QAbstractButton):
    def __init__(self, title: str) -> None:
        super().__init__()
        self.setAccessibleName(tr("Close {title}", title=title))
        self.setToolTip(tr("Close {title}; the menu brings it back", title=title))
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def sizeHint(self) -> QSize:
        return QSize(theme.px(16), theme.px(12))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        tokens = theme.current()
        painter.setPen(QPen(tokens.text if self.underMouse() else tokens.secondary, 1.2))
        c, r = QRectF(self.rect()).center(), theme.px(3)
        painter.drawLine(c + QPointF(-r, -r), c + QPointF(r, r))
        painter.drawLine(c + QPointF(-r, r), c + QPointF(r, -r))
        painter.end()


class _Strip(QFrame):
    """Moves the dock when dragged, floats it when double-clicked; both are QDockWidget's own doing."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.setProperty("role", "grip")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setCursor(Qt.CursorShape.SizeAllCursor)
        self.close_button = _Close(title)
        self.close_button.hide()
        fill(QHBoxLayout(self), None, self.close_button, margins=(0, 0, 4, 0))
        self._hovered = False

    def sizeHint(self) -> QSize:
        return QSize(40, theme.px(12))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def enterEvent(self, event: QEnterEvent) -> None:
        self._hover(True)

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(False)

    def _hover(self, on: bool) -> None:
        self._hovered = on and not theme.presenting()
        self.close_button.setVisible(self._hovered)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._hovered:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.current().faint)
        center = QRectF(self.rect()).center()
        for i in range(-2, 3):
            painter.drawEllipse(center + QPointF(i * theme.px(6), 0), 1.4, 1.4)
        painter.end()


class Dock(QDockWidget):
    """`title` names it in the menu and for screen readers, `name` in the kept layout; `padding` at sides and foot."""

    def __init__(self, name: str, title: str, content: QWidget, padding: int = 0) -> None:
        super().__init__(title)
        named(self, name, said=title)
        strip = _Strip(title)
        strip.close_button.clicked.connect(self.close)
        self.setTitleBarWidget(strip)
        body = column(margins=(padding, 0, padding, padding))
        self.setWidget(panel(body, "body"))
        body.addWidget(content)
        # behind another tab a dock still counts as visible: its content must not, so that it costs nothing there
        self.visibilityChanged.connect(content.setVisible)
        self.topLevelChanged.connect(self._on_floated)

    def _on_floated(self, floating: bool) -> None:
        if floating:
            self.resize(self.size().expandedTo(QSize(theme.px(320), theme.px(240))))
