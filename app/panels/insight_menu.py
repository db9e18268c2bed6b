"""What can be done with a panel: its table, a copy, and a file: PNG as it looks, SVG to edit, CSV of its facts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMenu

from app.panels.picture_file import write_drawing, write_picture
from app.panels.save_dialog import ask_where, remember

if TYPE_CHECKING:
    from app.panels.insight import InsightPanel

FORMATS = {"Picture": ".png", "Drawing": ".svg", "Table": ".csv"}


class InsightMenu(QMenu):
    """The menu of one panel."""

    def __init__(self, panel: InsightPanel) -> None:
        super().__init__(panel)
        self._panel = panel
        self.table_action = self.addAction("Show as a table")
        self.table_action.setCheckable(True)
        self.table_action.toggled.connect(panel.show_table)
        self.addAction("Copy the table").triggered.connect(self.copy)
        self.addSeparator()
        for kind, ending in FORMATS.items():
            action = self.addAction(f"Export as {ending[1:].upper()} …")
            action.triggered.connect(lambda checked=False, kind=kind: self.ask(kind))

    def copy(self) -> None:
        """The facts, as CSV."""
        QGuiApplication.clipboard().setText(self._panel.facts().csv())
        self._panel.done.emit(f"{self._panel.title}: the table was copied.")

    def ask(self, kind: str) -> None:
        """Asks where to; the file's ending says how."""
        panel = self._panel
        title, stem = f"Export: {panel.title}", panel.objectName()
        ask_where(panel, "insight_export_dialog", title, FORMATS, kind, stem, self.save)

    def save(self, path: str | Path) -> None:
        """Writes the panel to a file; `done` or `failed` says what came of it."""
        path, panel = Path(path), self._panel
        remember(path)
        try:
            match path.suffix.lower():
                case ".csv":
                    path.write_text(panel.facts().csv(), encoding="utf-8")
                case ".svg":
                    write_drawing(panel.picture, path, panel.title)
                case _:
                    write_picture(panel.picture, path, ", ".join(FORMATS.values()))
        except OSError as error:
            panel.failed.emit(f"{panel.title} was not saved to {path}: {error.strerror or error}.")
        else:
            panel.done.emit(f"{panel.title} was saved to {path}.")
