"""What can be done with a turn: quiet buttons, made when they are first shown; their room is kept before."""

from collections.abc import Callable
from itertools import pairwise

from PySide6.QtWidgets import QPushButton, QWidget

from app.ui.layout.boxes import named
from app.ui.layout.flow import Flow
from app.ui.look import theme

LINE = 24  # pixels of the design


class Deeds(QWidget):
    def __init__(self, owner: QWidget, make: Callable[[], dict[str, QPushButton]]) -> None:
        """Tab goes from `owner` to them."""
        super().__init__(owner)
        named(self, "turn_deeds")
        self._owner, self._make = owner, make
        self._made: dict[str, QPushButton] = {}
        self._off: dict[str, bool] = {}
        self._flow = Flow(self)
        self._flow.gap = 0
        self.on = False

    def __contains__(self, name: str) -> bool:
        return name in self.buttons

    @property
    def buttons(self) -> dict[str, QPushButton]:
        if not self._made:
            self._made = self._make()
            for name, each in self._made.items():
                each.setProperty("role", "quiet")
                each.setEnabled(not self._off.get(name))
                each.setVisible(False)
                self._flow.addWidget(each)
            for before, after in pairwise([self._owner, *self._made.values()]):
                QWidget.setTabOrder(before, after)
        return self._made

    @property
    def made(self) -> list[QPushButton]:
        """The buttons, where they are made."""
        return list(self._made.values())

    def enable(self, name: str, on: bool) -> None:
        self._off[name] = not on
        if name in self._made:
            self._made[name].setEnabled(on)

    def show_all(self, on: bool) -> None:
        if on != self.on:
            self.on = on
            for each in self.buttons.values():
                each.setVisible(on)

    def keep_room(self, lines: int) -> None:
        """For so many lines of buttons."""
        self.setMinimumHeight(theme.px(LINE) * lines)
