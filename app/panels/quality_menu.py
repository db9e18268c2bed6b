"""What can be done with a quality report: copied, or saved as a picture, a drawing, or a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMenu, QWidget

from app import theme
from app.panels.export_menu import FORMATS as TABLES
from app.panels.export_menu import text_of
from app.panels.picture_file import DRAWING, PICTURE, write_drawing, write_picture
from app.panels.quality_words import QualityTable
from app.panels.save_dialog import ask_where, remember

FORMATS = {"Picture": PICTURE, "Drawing": DRAWING, **TABLES}
TITLE = "Quality of quantizations"


class QualityMenu(QMenu):
    """`picture` is what is drawn; `table` gives what is exported now, None while there is nothing."""

    failed = Signal(str)
    done = Signal(str)  # what was done, for people

    def __init__(self, parent: QWidget, picture: QWidget, table: Callable[[], QualityTable | None]) -> None:
        super().__init__(parent)
        self._picture, self._table = picture, table
        for kind in TABLES:
            self.addAction(f"Copy as {kind}").triggered.connect(lambda checked=False, kind=kind: self.copy(kind))
        self.addSeparator()
        for kind, ending in FORMATS.items():
            action = self.addAction(f"Save as {ending[1:].upper() if ending != '.md' else kind} …")
            action.triggered.connect(lambda checked=False, kind=kind: self.ask(kind))
        self.aboutToShow.connect(self._on_show)

    def copy(self, kind: str) -> None:
        table = self._table()
        if table is not None:
            QGuiApplication.clipboard().setText(text_of(table, kind))
            self.done.emit(f"The table was copied as {kind}.")

    def ask(self, kind: str) -> None:
        """Asks where to; the file's ending says how."""
        title = f"Save: {TITLE}"
        ask_where(self.parentWidget(), "quality_export_dialog", title, FORMATS, kind, "quality", self.save)

    def save(self, path: str | Path) -> None:
        """Writes a file; `done` or `failed` says what came of it."""
        path, table = Path(path), self._table()
        if table is None:
            return
        remember(path)
        kind = next((kind for kind, ending in TABLES.items() if ending == path.suffix.lower()), "")
        try:
            if kind:
                path.write_text(text_of(table, kind), encoding="utf-8")
            elif path.suffix.lower() == DRAWING:
                write_drawing(self._picture, path, TITLE, theme.current().panel)
            else:
                write_picture(self._picture, path, ", ".join(FORMATS.values()), theme.current().panel)
        except OSError as error:
            self.failed.emit(f"The quality report was not saved to {path}: {error.strerror or error}.")
        else:
            self.done.emit(f"The quality report was saved to {path}.")

    def _on_show(self) -> None:
        for action in self.actions():
            action.setEnabled(self._table() is not None)
