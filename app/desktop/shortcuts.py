"""Every key there is, page by page: read from the actions and from the tables that hear keys."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QSize
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from app.language import tr
from app.ui.controls import line_edit
from app.ui.labels import Heading, Note, label
from app.ui.layout.boxes import Scrolled, column, fill, held, row
from app.ui.look import theme
from app.ui.sheets.dialog import Dialog

NATIVE = QKeySequence.SequenceFormat.NativeText


@dataclass(frozen=True, slots=True)
class Shortcut:
    words: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Keys that are heard at one place."""

    title: str
    shortcuts: tuple[Shortcut, ...]


def of_actions(title: str, actions: Iterable[QAction]) -> Group:
    """Those that have keys."""
    told = (
        Shortcut(action.text().replace("&", ""), tuple(key.toString(NATIVE) for key in action.shortcuts()))
        for action in actions
    )
    return Group(title, tuple(shortcut for shortcut in told if any(shortcut.keys)))


class ShortcutsDialog(Dialog):
    """What the keyboard does, found by a word or by a key."""

    def __init__(self, parent: QWidget, groups: Sequence[Group]) -> None:
        super().__init__(parent, "shortcuts_dialog", tr("Keyboard shortcuts"))
        self.search = line_edit("shortcuts_search", tr("Search in the shortcuts"), tr("Search by word or key"))
        self.search.setClearButtonEnabled(True)
        self.empty = Note("shortcuts_empty")
        self._groups: list[tuple[QWidget, list[tuple[QWidget, Shortcut]]]] = []
        sheet = column(self.empty, margins=(0, 0, 12, 0), spacing=6)
        for group in groups:
            if group.shortcuts:
                lines = [(_line(shortcut), shortcut) for shortcut in group.shortcuts]
                heading = Heading(group.title)
                self._groups.append((heading, lines))
                fill(sheet, heading, *(line for line, _ in lines), 10, margins=None)
        sheet.addStretch(1)
        self.area = Scrolled(sheet, "shortcuts_scroll", tr("shortcuts"))
        fill(self.column, self.search, (self.area, 1), margins=None)
        self.add_close()
        self.search.textChanged.connect(self._on_search)
        self.resize(QSize(theme.px(560), theme.px(640)).boundedTo(parent.size() * 0.9))

    def shown(self) -> list[Shortcut]:
        """Those that the search has found."""
        return [shortcut for _, lines in self._groups for line, shortcut in lines if not line.isHidden()]

    def _on_search(self, text: str) -> None:
        words = text.lower().split()
        for heading, lines in self._groups:
            for line, shortcut in lines:
                hay = f"{shortcut.words} {' '.join(map(_native, shortcut.keys))}".lower()
                line.setVisible(all(word in hay for word in words))
            heading.setVisible(any(not line.isHidden() for line, _ in lines))
        self.empty.say(
            "" if self.shown() else tr("No key, and nothing that a key does, is called “{text}”.", text=text)
        )


def _native(key: str) -> str:
    """As it is written on the keyboard; what is no key as it is."""
    return QKeySequence(key).toString(NATIVE) or key


def _line(shortcut: Shortcut) -> QWidget:
    keys = [_native(key) for key in shortcut.keys]
    made = held(row((label(shortcut.words, "secondary"), 1), *(label(key, "key") for key in keys), spacing=4))
    either = " " + tr("or") + " "
    made.setAccessibleName(f"{shortcut.words}: {either.join(keys)}")
    return made
