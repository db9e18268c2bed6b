"""What the pages of the window are called, by settings and by people."""

from typing import NamedTuple

from PySide6.QtGui import QKeySequence

from app.language import tr


class PageName(NamedTuple):
    """`name` is kept in the settings, whatever language is spoken; `title` is for people."""

    name: str
    title: str
    keys: str

    @property
    def native_keys(self) -> str:
        """As they are written on the keyboard."""
        return QKeySequence(self.keys).toString(QKeySequence.SequenceFormat.NativeText)


PAGES = (
    PageName("Play", tr("Play"), "Ctrl+1"),
    PageName("Chat", tr("Chat"), "Ctrl+2"),
    PageName("Compare", tr("Compare"), "Ctrl+3"),
    PageName("Runs", tr("Runs"), "Ctrl+4"),
    PageName("Models", tr("Models"), "Ctrl+5"),
)
