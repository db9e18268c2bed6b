"""Which text: one that ships, or a person's file."""

from pathlib import Path

from PySide6.QtCore import Qt, Signal

from app import storage
from app.language import tr
from app.ui.controls import DropDown
from app.ui.sheets.ask_path import ask_path
from app.words import sentence
from engine.quality import TEXTS

FILE = "file"  # the last entry
FOLDER_KEY = "quality/folder"


class TextChoice(DropDown):
    """The shipped texts, the files chosen so far, and a way to choose another. `text()` is a name or a path."""

    text_changed = Signal()

    def __init__(self, name: str) -> None:
        super().__init__(name, [*((text, text) for text in TEXTS), (tr("a file …"), FILE)])
        self.setMinimumContentsLength(14)
        for i, words in enumerate(TEXTS.values()):
            self.setItemData(i, sentence(words) + ".", Qt.ItemDataRole.ToolTipRole)
        self._last = 0
        self.activated.connect(self._on_activated)
        self.currentIndexChanged.connect(self._on_index)
        self._on_index()

    def text(self) -> str:
        data = self.currentData()
        return str(self.itemData(self._last) if data == FILE else data)

    def choose(self, text: str) -> None:
        """This text, a name or a path."""
        at = self.findData(text)
        if at < 0:
            at = self.count() - 1
            self.insertItem(at, Path(text).name, text)
            self.setItemData(at, text, Qt.ItemDataRole.ToolTipRole)
        self.setCurrentIndex(at)

    def ask(self) -> None:
        """Asks for a file."""
        filters = (tr("Texts (*.txt *.md)"), tr("All files (*)"))
        ask_path(self, "text_dialog", tr("Choose a text"), FOLDER_KEY, self._on_file, filters)

    def _on_file(self, path: str) -> None:
        storage.settings().setValue(FOLDER_KEY, str(Path(path).parent))
        self.choose(path)

    def _on_activated(self, index: int) -> None:
        if self.itemData(index) == FILE:
            self.setCurrentIndex(self._last)
            self.ask()

    def _on_index(self) -> None:
        if self.currentData() != FILE:
            self._last = self.currentIndex()
            self.setToolTip(str(self.currentData(Qt.ItemDataRole.ToolTipRole) or ""))
            self.text_changed.emit()
