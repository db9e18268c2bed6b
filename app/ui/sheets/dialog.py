"""What every dialog of the window has in common."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QPushButton, QVBoxLayout, QWidget

from app.language import tr
from app.ui.layout.boxes import fill, row
from app.ui.look import theme


class Dialog(QDialog):
    """Deletes itself when it is closed; put widgets into `column`."""

    def __init__(self, parent: QWidget, name: str, title: str) -> None:
        super().__init__(parent)
        self.setObjectName(name)
        self.setWindowTitle(title)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setMinimumWidth(theme.px(340))
        self.column = fill(QVBoxLayout(self), margins=(24, 20, 24, 16), spacing=12)

    def add_close(self) -> None:
        close = QPushButton(tr("Close"))
        close.setDefault(True)
        close.clicked.connect(self.accept)
        fill(self.column, 8, row(None, close), margins=None)
