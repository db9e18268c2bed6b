"""A small sheet beside the control that opened it; a click elsewhere or Esc closes it."""

from PySide6.QtCore import QPoint, QSize, Qt
from PySide6.QtWidgets import QLayout, QVBoxLayout, QWidget

from app.ui.layout.boxes import Scrolled, column, fill, named, panel
from app.ui.look import theme

BORDER = 1


class Popover(QWidget):
    """Put controls into `column`."""

    def __init__(self, parent: QWidget, name: str, title: str, width: int = 300) -> None:
        super().__init__(parent, Qt.WindowType.Popup | Qt.WindowType.FramelessWindowHint)
        named(self, name, said=title)
        self.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground)
        self._width = width
        self.column = column(spacing=8)
        inner = column(self.column, None, margins=(12, 12, 12, 12), spacing=0)
        self._body = Scrolled(inner, f"{name}_scroll", title)
        outer = fill(QVBoxLayout(self), panel(column(self._body), "popup"))
        outer.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)  # its least is that of the narrowest words

    def open_below(self, control: QWidget) -> None:
        """Shows itself under a control, within the screen."""
        for child in self.findChildren(QWidget):
            child.ensurePolished()  # sizes are told right only in the style sheet's clothes
        self.fit()
        place = control.mapToGlobal(QPoint(0, control.height() + 4))
        screen = control.screen().availableGeometry()
        x = max(screen.left(), min(place.x(), screen.right() - self.width()))
        y = max(screen.top(), min(place.y(), screen.bottom() - self.height()))
        self.move(x, y)
        self.show()

    def fit(self) -> None:
        """Takes the height of what is shown in it now; what the screen has no room for is scrolled to."""
        self.setFixedWidth(theme.px(self._width))
        edges = 2 * theme.px(BORDER)
        room = self.screen().availableGeometry().height() - edges
        height = self._height(self.width() - edges)
        if height > room:
            height = self._height(self.width() - edges - self._body.verticalScrollBar().sizeHint().width())
        self._body.sheet.setMinimumHeight(height)  # else it would be that of the narrowest words
        self.resize(QSize(self.width(), min(height, room) + edges))

    def _height(self, width: int) -> int:
        layout = self._body.sheet.layout()
        assert layout is not None
        layout.activate()
        return layout.totalHeightForWidth(width) if layout.hasHeightForWidth() else layout.totalSizeHint().height()
