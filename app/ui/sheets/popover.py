"""A small sheet beside the control that opened it; a click elsewhere or Esc closes it."""

from PySide6.QtCore import QPoint, QSize, Qt
from PySide6.QtWidgets import QLayout, QVBoxLayout, QWidget

from app.ui.layout.boxes import column, fill, named, panel
from app.ui.look import theme


class Popover(QWidget):
    """Put controls into `column`."""

    def __init__(self, parent: QWidget, name: str, title: str, width: int = 300) -> None:
        super().__init__(parent, Qt.WindowType.Popup | Qt.WindowType.FramelessWindowHint)
        named(self, name, said=title)
        self.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground)
        self._width = width
        self.column = column(spacing=8)
        sheet = panel(column(self.column, None, margins=(12, 12, 12, 12), spacing=0), "popup")
        outer = fill(QVBoxLayout(self), sheet)
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
        """Takes the height of what is shown in it now."""
        self.setFixedWidth(theme.px(self._width))
        layout = self.layout()
        assert layout is not None
        layout.activate()
        height = layout.heightForWidth(self.width()) if layout.hasHeightForWidth() else layout.sizeHint().height()
        self.resize(QSize(self.width(), height))
