"""Copies or saves a table: as Markdown for a page, CSV for a spreadsheet, JSON for a script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMenu, QWidget

from app.panels.save_dialog import ask_where, remember

FORMATS = {"Markdown": ".md", "CSV": ".csv", "JSON": ".json"}


class Table(Protocol):
    """What can be exported: `engine.Comparison`, and what a sweep makes."""

    def markdown(self) -> str: ...
    def csv(self) -> str: ...
    def json(self) -> str: ...


def text_of(table: Table, kind: str) -> str:
    """The table in one of `FORMATS`."""
    match kind:
        case "Markdown":
            return table.markdown()
        case "CSV":
            return table.csv()
        case _:
            return table.json()


class ExportMenu(QMenu):
    """`table` gives what is exported now; None while there is nothing."""

    failed = Signal(str)
    done = Signal(str)  # what was done, for people

    def __init__(self, parent: QWidget, table: Callable[[], Table | None]) -> None:
        super().__init__(parent)
        self._table = table
        for kind in FORMATS:
            action = self.addAction(f"Copy as {kind}")
            action.triggered.connect(lambda checked=False, kind=kind: self.copy(kind))
        self.addSeparator()
        self.addAction("Save the table …").triggered.connect(self.ask)
        self.aboutToShow.connect(self._on_show)

    def copy(self, kind: str) -> None:
        table = self._table()
        if table is not None:
            QGuiApplication.clipboard().setText(text_of(table, kind))
            self.done.emit(f"The table was copied as {kind}.")

    def ask(self) -> None:
        """Asks where to save; the file's ending says how."""
        ask_where(self.parentWidget(), "export_dialog", "Save the table", FORMATS, "Markdown", "race", self.save)

    def save(self, path: str | Path) -> None:
        path, table = Path(path), self._table()
        if table is None:
            return
        kind = next((kind for kind, ending in FORMATS.items() if ending == path.suffix.lower()), "Markdown")
        remember(path)
        try:
            path.write_text(text_of(table, kind), encoding="utf-8")
        except OSError as error:
            self.failed.emit(f"The table was not saved to {path}: {error.strerror}.")
        else:
            self.done.emit(f"The table was saved to {path}.")

    def _on_show(self) -> None:
        for action in self.actions():
            action.setEnabled(self._table() is not None)
