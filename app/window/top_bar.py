"""The bar at the top: whose window this is, which page, what is loaded, and the way to every action."""

from collections.abc import Sequence

from PySide6.QtCore import QRect, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QFrame, QHBoxLayout, QMenu, QToolButton

from app.language import tr
from app.ui.controls import button
from app.ui.labels import label
from app.ui.layout.boxes import fill, named
from app.ui.line import Line
from app.ui.look import theme
from app.ui.painted import Painted
from app.window.page_name import PageName

MARK = ((0, "#f28881", 0.10, 0.58), (1, "#4dc492", 0.30, 1.0), (2, "#b897f0", 0.18, 0.48))
SEPARATOR = "   ·   "
LEAST_SAID = 132  # pixels of the design for what is loaded: a model's name
SEARCH = tr("Search actions    Ctrl Shift P")


class Logo(Painted):
    """Three requests on their way, as in the icon."""

    hint = least = (22, 18)

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        size = self.sizeHint()
        top, high, pitch = (self.height() - size.height()) / 2, size.height() * 0.26, size.height() * 0.37
        for row, color, begin, end in MARK:
            painter.setBrush(QColor(color))
            bar = QRectF(begin * size.width(), top + row * pitch, (end - begin) * size.width(), high)
            painter.drawRoundedRect(bar, high / 2, high / 2)


class TopBar(QFrame):
    """`pages` are names, titles and keys of the window's pages, in their order."""

    page_asked = Signal(int)

    def __init__(self, menu: QMenu, pages: Sequence[PageName]) -> None:
        super().__init__()
        named(self, "top_bar", "bar")
        self.pages = QButtonGroup(self)
        for i, page in enumerate(pages):
            tip, name = f"{page.title} ({page.native_keys})", f"page_{page.name.lower()}"
            self.pages.addButton(button(name, page.title, role="page", tip=tip, checkable=True), i)
        self.pages.button(0).setChecked(True)
        self.pages.idClicked.connect(self.page_asked)
        self.status = Line("status_text", Qt.AlignmentFlag.AlignHCenter)
        self.search = button("search_actions", SEARCH, role="search", said=tr("Search actions"), tip=SEARCH)
        self.menu_button = named(QToolButton(), "menu_button", said=tr("Menu"))
        self.menu_button.setText(tr("Menu"))
        self.menu_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.menu_button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.menu_button.setMenu(menu)
        row, self._brand, self._logo = QHBoxLayout(self), label("Batchscope", "brand"), Logo()
        fill(row, self._logo, self._brand, 8, *self.pages.buttons(), margins=(16, 7, 12, 7), spacing=8)
        fill(row, (self.status, 1), self.search, self.menu_button, margins=None)
        self.setMinimumWidth(1)  # its words give way before the window grows

    def say(self, words: str) -> None:
        """What is loaded, or under way: facts of which the last go first where they have no room."""
        parts = words.split(SEPARATOR)
        self.status.say(words, *(SEPARATOR.join(parts[:count]) for count in range(len(parts) - 1, 0, -1)))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fold()

    def fold(self) -> None:
        """Where there is little room, the name goes, and search and menu are signs."""
        layout = self.layout()
        assert layout is not None
        for words, brand in ((SEARCH, True), (SEARCH, False), ("⌕", False)):
            self.search.setText(words)
            self._brand.setVisible(brand)
            self._logo.setVisible(words == SEARCH)
            self.menu_button.setText(tr("Menu") if words == SEARCH else "☰")
            layout.invalidate()
            if layout.minimumSize().width() + theme.px(LEAST_SAID) <= self.width():
                break

    def show_page(self, index: int) -> None:
        self.pages.button(index).setChecked(True)
