"""Lays a step's sheet and its rows beside each other where there is room, else one above the other in one scroll."""

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QPainter, QResizeEvent
from PySide6.QtWidgets import QScrollArea, QWidget

from app.inside.step.rows import StepRows
from app.inside.step.sheet import StepSheet
from app.inside.step.story import StepStory
from app.language import tr
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted

WIDE = 640  # from here on in two columns
WIDEST = 1280  # from here on the sheet has two columns itself
SHEET = (320, 480)  # the sheet's width beside the rows
BAR = 10  # a scroll bar's width, in the style sheet's pixels
GAP = 16


class _Scroll(QScrollArea):
    def __init__(self, name: str, title: str) -> None:
        super().__init__()
        self.setObjectName(name)
        self.setAccessibleName(title)
        self.setFrameShape(QScrollArea.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.viewport().setAutoFillBackground(False)
        self.sheet = QWidget()
        self.sheet.setProperty("role", "sheet")
        self.setWidget(self.sheet)


class StepPicture(Painted):
    """The drawn side of the step inspector."""

    sharp = True
    empty = Face(13)

    def __init__(self) -> None:
        super().__init__("step_picture")
        self.sheet, self.rows = StepSheet(), StepRows()
        self._left = _Scroll("step_left", tr("The step"))
        self._right = _Scroll("step_right", tr("The step's rows"))
        for scroll in (self._left, self._right):
            scroll.setParent(self)
            scroll.verticalScrollBar().valueChanged.connect(self.rows.update)
        self.sheet.setParent(self._left.sheet)
        self.rows.setParent(self._right.sheet)
        self.rows.row_wanted.connect(self._on_row_wanted)
        self._story: StepStory | None = None
        self._selected = -1
        self._empty = ""

    @property
    def wide(self) -> bool:
        """Whether sheet and rows are beside each other."""
        return self.width() >= theme.px(WIDE)

    @property
    def tall(self) -> int:
        """Pixels in which all of the step has room."""
        return max(self.sheet.height(), self.rows.high) if self.wide else self._left.sheet.height()

    def hide_bars(self) -> None:
        """Nothing is to be scrolled."""
        for scroll in (self._left, self._right):
            scroll.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    def show_story(self, story: StepStory | None, selected: int, empty: str = "") -> None:
        """Another step or selection; `empty` is said where there is no step."""
        chosen = selected != self._selected
        self._story, self._selected, self._empty = story, selected, empty
        self.setAccessibleDescription(empty)
        self._arrange()
        # where all scrolls together, nobody wants to be taken away from the figure
        if chosen and self.wide and story is not None and selected >= 0 and (mine := story.rows_of(selected)):
            self._on_row_wanted((mine[0] + 1) * self.rows.row_high, self.rows.row_high)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._arrange()

    def _arrange(self) -> None:
        shown = self._story is not None
        self._left.setVisible(shown)
        self._right.setVisible(shown and self.wide)
        self.sheet.show_story(self._story, self._selected, not self.wide)
        self.rows.show_story(self._story, self._selected)
        if not shown:
            self.update()
            return
        home = (self._right if self.wide else self._left).sheet
        if self.rows.parentWidget() is not home:
            self.rows.setParent(home)
            self.rows.show()
        (self._beside if self.wide else self._above)()

    def _beside(self) -> None:
        bar, high = theme.px(BAR), self.height()
        left = min(max(round(0.44 * self.width()), theme.px(SHEET[0])), theme.px(SHEET[1])) + bar
        if self.width() >= theme.px(WIDEST):
            left = min(round(0.56 * self.width()), theme.px(2 * SHEET[1])) + bar
        self._left.setGeometry(0, 0, left, high)
        self._left.sheet.resize(left - bar, self._place_sheet(left - bar, high))
        x = left + theme.px(GAP) - bar
        self._right.setGeometry(x, 0, self.width() - x, high)
        wide = self.width() - x - bar
        self.rows.setGeometry(0, 0, wide, max(self.rows.high, high))
        self._right.sheet.resize(wide, max(self.rows.high, 1))

    def _above(self) -> None:
        self._left.setGeometry(0, 0, self.width(), self.height())
        wide = self.width() - theme.px(BAR)
        top = self._place_sheet(wide, None) + theme.px(8)
        self.rows.setGeometry(0, top, wide, self.rows.high)
        self._left.sheet.resize(wide, top + self.rows.high)

    def _place_sheet(self, width: int, room: int | None) -> int:
        high = self.sheet.fit(width, room)
        self.sheet.setGeometry(0, 0, width, high)
        return high

    def _on_row_wanted(self, top: int, height: int) -> None:
        scroll = self._right if self.wide else self._left
        at = self.rows.y() + top
        bar = scroll.verticalScrollBar()
        least = at + height - scroll.viewport().height()
        bar.setValue(min(max(bar.value(), least), at - height))  # the head lies over the first row

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        painter.fillRect(dirty, theme.current().panel)
        if self._story is None and self._empty:
            self.say_empty(painter, self._empty)
