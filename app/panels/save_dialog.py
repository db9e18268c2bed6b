"""Asks where to save something; the folder is remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QWidget

from app import places

FOLDER = "export/folder"


def ask_where(
    parent: QWidget | None,
    name: str,
    title: str,
    formats: Mapping[str, str],
    kind: str,
    stem: str,
    take: Callable[[str], object],
) -> None:
    """Opens a dialog called `name` that offers `formats` (words to ending), `kind` of them first; `take` gets the path
    that is chosen."""
    dialog = QFileDialog(parent, title, str(places.settings().value(FOLDER, "")))
    dialog.setObjectName(name)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setNameFilters([f"{each} (*{ending})" for each, ending in formats.items()])
    dialog.selectNameFilter(f"{kind} (*{formats[kind]})")
    dialog.setDefaultSuffix(formats[kind][1:])
    dialog.selectFile(f"{stem}{formats[kind]}")
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.fileSelected.connect(take)
    dialog.open()


def remember(path: Path) -> None:
    """The folder that is offered the next time."""
    places.settings().setValue(FOLDER, str(path.parent))
