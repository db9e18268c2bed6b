"""Asks for a file or a folder, beginning where the last one was."""

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QWidget

from app import storage


def ask_path(
    parent: QWidget, name: str, title: str, at: str | Path, take: Callable[[str], object], filters: Sequence[str] = ()
) -> None:
    """`filters` are of files; without them a folder is asked for. `at`: where to begin, or the key under which the last
    place is remembered, by who takes the path."""
    folder = at if isinstance(at, Path) else storage.settings().value(at, "")
    dialog = QFileDialog(parent.window(), title, str(folder))
    dialog.setObjectName(name)
    if filters:
        dialog.setNameFilters(filters)
    else:
        dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.fileSelected.connect(take)
    dialog.open()
