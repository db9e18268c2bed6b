"""Two small dialogs: settings, and the list of keys."""

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QGridLayout, QWidget

from app import storage
from app.ui import theme
from app.ui.controls import DropDown
from app.ui.dialog import Dialog
from app.ui.labels import Row, label
from app.window.command_palette import plain_name

THEMES: list[tuple[str, object]] = [("as the system", "system"), ("dark", "dark"), ("light", "light")]
MORE_KEYS = (("Walk through sent prompts", "Ctrl+Up  Ctrl+Down"), ("Undo in a text", "Ctrl+Z"))


class SettingsDialog(Dialog):
    """Theme and zoom; both take effect at once and are remembered."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, "settings_dialog", "Settings")
        self.theme = DropDown("settings_theme", THEMES)
        self.theme.set_value(theme.choice())
        self.zoom = DropDown("settings_zoom", [(f"{round(100 * z)} %", z) for z in theme.ZOOMS])
        self.zoom.set_value(theme.zoom())
        self.column.addWidget(Row("Theme", self.theme))
        self.column.addWidget(Row("Zoom", self.zoom))
        folder = label(f"Runs are kept in {storage.runs()}", "note")
        folder.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.column.addWidget(folder)
        self.add_close()
        self.theme.activated.connect(lambda: theme.set_theme(self.theme.currentData()))
        self.zoom.activated.connect(lambda: theme.set_zoom(self.zoom.currentData()))


class ShortcutsDialog(Dialog):
    """What the keyboard does."""

    def __init__(self, parent: QWidget, actions: Sequence[QAction]) -> None:
        super().__init__(parent, "shortcuts_dialog", "Keyboard shortcuts")
        grid = QGridLayout()
        grid.setHorizontalSpacing(32)
        grid.setVerticalSpacing(6)
        shown = [
            (plain_name(a), "   ".join(s.toString(QKeySequence.SequenceFormat.NativeText) for s in a.shortcuts()[:1]))
            for a in actions
            if a.shortcuts()
        ]
        half = (len(shown) + len(MORE_KEYS) + 1) // 2
        for i, (words, keys) in enumerate((*shown, *MORE_KEYS)):
            column, row = 3 * (i // half), i % half
            grid.addWidget(label(words, "secondary"), row, column)
            grid.addWidget(label(keys, "key"), row, column + 1, Qt.AlignmentFlag.AlignRight)
        self.column.addLayout(grid)
        self.add_close()
