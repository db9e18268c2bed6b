"""The files that go with a prompt, each as a chip: its name, its tokens, and the way to take it out."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QWidget

from app.chat.store.tree import Attachment
from app.language import tr, trn
from app.ui.controls import button
from app.ui.labels import label
from app.ui.layout.boxes import named, row
from app.ui.layout.flow import Flow

PREVIEW = 600  # characters


def file_words(file: Attachment) -> str:
    """ "notes.txt · 212 tokens"."""
    return f"{file.name}  ·  {trn('{count:,} token', '{count:,} tokens', file.tokens)}"


class Chip(QFrame):
    """`more` is what stands behind its words."""

    def __init__(self, file: Attachment, *more: QWidget) -> None:
        super().__init__()
        named(self, "file_chip", "chip", said=file_words(file), tip=file.text[:PREVIEW])
        self.setLayout(row(label(file_words(file), "note"), *more, margins=(10, 3, 6 if more else 10, 3), spacing=2))


class FileChips(QWidget):
    """Takes no room while there are none."""

    changed = Signal()

    def __init__(self, *, fixed: bool = False) -> None:
        super().__init__()
        named(self, "file_chips", said=tr("Files of the prompt"))
        self._fixed = fixed
        self._flow = Flow(self)
        self.files: list[Attachment] = []
        self.hide()

    def show_files(self, files: list[Attachment]) -> None:
        self.files = list(files)
        while (item := self._flow.takeAt(0)) is not None:
            if (old := item.widget()) is not None:
                old.hide()
                old.deleteLater()
        for file in self.files:
            chip = Chip(file, *([] if self._fixed else [self._way_out(file)]))
            self._flow.addWidget(chip)
            chip.show()
        self.setVisible(bool(self.files))
        self.updateGeometry()
        self.changed.emit()

    def _way_out(self, file: Attachment) -> QWidget:
        words = tr("Take out {name}", name=file.name)
        return button("chip_drop", "✕", lambda: self._on_drop(file), role="quiet", said=words, tip=words)

    def _on_drop(self, file: Attachment) -> None:
        self.show_files([other for other in self.files if other is not file])
