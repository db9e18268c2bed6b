"""The window's pages, each built when it is first shown."""

from collections.abc import Callable, Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QStackedWidget, QWidget

from app.ui.layout.boxes import steady
from app.ui.page import Page

Maker = Callable[[], Page]


class Pages(QStackedWidget):
    """`makers` build the pages, in their order."""

    built = Signal(QWidget)
    shown = Signal(int)

    def __init__(self, makers: Sequence[Maker]) -> None:
        super().__init__()
        self._makers = makers
        for _ in makers:
            self.addWidget(QWidget())  # where the page will stand

    def build(self, index: int) -> Page:
        """The page at this place, built where it is not there yet."""
        place = self.widget(index)
        if isinstance(place, Page):
            return place
        page, shown = self._makers[index](), self.currentIndex()
        if place is not None:
            self.removeWidget(place)
            place.deleteLater()
        self.insertWidget(index, page)
        self.setCurrentIndex(shown)
        self.built.emit(page)
        return page

    def show_page(self, index: int) -> None:
        steady(self)
        page = self.build(index)
        self.setCurrentIndex(index)
        self.shown.emit(index)
        page.enter()

    @property
    def current(self) -> Page:
        return self.build(self.currentIndex())

    def all_built(self) -> list[Page]:
        return [page for page in map(self.widget, range(self.count())) if isinstance(page, Page)]
