"""The bar at the top: whose window this is, which page, what is loaded, and the way to every action."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QButtonGroup, QFrame, QHBoxLayout, QMenu, QPushButton, QToolButton, QWidget

from app.ui import theme
from app.ui.labels import label
from app.ui.line import Line

MARK = ((0, "#f28881", 0.10, 0.58), (1, "#4dc492", 0.30, 1.0), (2, "#b897f0", 0.18, 0.48))


class Logo(QWidget):
    """Three requests on their way, as in the icon."""

    def sizeHint(self) -> QSize:
        return QSize(theme.px(22), theme.px(18))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        size = self.sizeHint()
        top, high, pitch = (self.height() - size.height()) / 2, size.height() * 0.26, size.height() * 0.37
        for row, color, begin, end in MARK:
            painter.setBrush(QColor(color))
            bar = QRectF(begin * size.width(), top + row * pitch, (end - begin) * size.width(), high)
            painter.drawRoundedRect(bar, high / 2, high / 2)
        painter.end()


class TopBar(QFrame):
    """`pages` are names and keys of the window's pages, in their order."""

    page_asked = Signal(int)

    def __init__(self, menu: QMenu, pages: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.setObjectName("top_bar")
        self.setProperty("role", "bar")
        self.brand = label("Batchscope", "brand")
        self.pages = QButtonGroup(self)
        for i, (name, key) in enumerate(pages):
            button = QPushButton(name)
            button.setObjectName(f"page_{name.lower()}")
            button.setProperty("role", "page")
            button.setCheckable(True)
            button.setToolTip(f"{name} ({key})")
            self.pages.addButton(button, i)
        self.pages.button(0).setChecked(True)
        self.pages.idClicked.connect(self.page_asked)
        self.status = Line("status_text", Qt.AlignmentFlag.AlignHCenter)
        self.search = QPushButton("Search actions    Ctrl Shift P")
        self.search.setObjectName("search_actions")
        self.search.setProperty("role", "search")
        self.search.setAccessibleName("Search actions")
        self.menu_button = QToolButton()
        self.menu_button.setObjectName("menu_button")
        self.menu_button.setText("Menu")
        self.menu_button.setAccessibleName("Menu")
        self.menu_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.menu_button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.menu_button.setMenu(menu)
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 7, 12, 7)
        row.setSpacing(8)
        row.addWidget(Logo())
        row.addWidget(self.brand)
        row.addSpacing(8)
        for each in self.pages.buttons():
            row.addWidget(each)
        row.addWidget(self.status, 1)
        row.addWidget(self.search)
        row.addWidget(self.menu_button)

    def show_page(self, index: int) -> None:
        self.pages.button(index).setChecked(True)
