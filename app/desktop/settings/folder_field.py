"""A folder that can be chosen, and why one cannot be."""

import os
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QWidget

from app.language import tr
from app.ui.controls import button, line_edit
from app.ui.layout.boxes import fill


class FolderField(QWidget):
    """`chosen` tells a folder that can be written to, `refused` why another is not taken."""

    chosen = Signal(str)
    refused = Signal(str)

    def __init__(self, name: str, title: str, default: str) -> None:
        super().__init__()
        self._title, self._default, self._folder = title, default, ""
        self.edit = line_edit(name, title, default)
        self.browse = button(f"{name}_browse", tr("Choose …"), self._on_browse, said=tr("Choose: {title}", title=title))
        self.browse.setAutoDefault(False)
        fill(QHBoxLayout(self), (self.edit, 1), self.browse, margins=(0, 0, 0, 0), spacing=6)
        self.setFocusProxy(self.edit)
        self.edit.editingFinished.connect(lambda: self.take(self.edit.text()))

    def show_folder(self, folder: str) -> None:
        self._folder = folder
        self.edit.setText(folder)
        self.edit.setCursorPosition(0)

    def take(self, text: str) -> None:
        """Takes a folder, which is made where it is not there; "" is the usual one."""
        text = text.strip()
        if text == self._folder:
            return
        folder = Path(text).expanduser()
        try:
            if text and not folder.is_absolute():
                raise OSError(0, tr("give the whole path, from / on"))
            if text:
                folder.mkdir(parents=True, exist_ok=True)
                if not os.access(folder, os.W_OK):
                    raise OSError(0, tr("it cannot be written to"))
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            self.edit.setText(self._folder)
            self.refused.emit(tr("{folder}: {why}. Choose another folder.", folder=text, why=why))
            return
        self.show_folder(str(folder) if text else "")
        self.chosen.emit(self._folder)

    def _on_browse(self) -> None:
        dialog = QFileDialog(self.window(), self._title, self._folder or self._default)
        dialog.setObjectName("settings_folder_dialog")
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.finished.connect(dialog.deleteLater)
        dialog.fileSelected.connect(self.take)
        dialog.open()
