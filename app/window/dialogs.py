"""Two small dialogs: settings, and the list of keys."""

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QGridLayout, QWidget

from app import storage
from app.ui import theme
from app.ui.controls import DropDown
from app.ui.dialog import Dialog
from app.ui.labels import Heading, Row, label
from app.ui.layouts import Scrolled, row
from app.window.command_palette import plain_name

THEMES: list[tuple[str, object]] = [("as the system", "system"), ("dark", "dark"), ("light", "light")]
MORE_KEYS = (("Walk through sent prompts", ("Ctrl+Up", "Ctrl+Down")), ("Undo in a text", ("Ctrl+Z",)))
TIMELINE = "Timeline, when it has the focus"


class SettingsDialog(Dialog):
    """Theme and zoom; both take effect at once and are remembered."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, "settings_dialog", "Settings")
        self.theme = DropDown("settings_theme", THEMES)
        self.theme.set_value(theme.choice())
        self.zoom = DropDown("settings_zoom", [(f"{round(100 * z)} %", z) for z in theme.ZOOMS])
        self.zoom.set_value(theme.chosen_zoom())
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
        from app.inside.timeline.selection import KEYS  # not before the window's first paint

        super().__init__(parent, "shortcuts_dialog", "Keyboard shortcuts")
        grid = QGridLayout()
        grid.setHorizontalSpacing(32)
        grid.setVerticalSpacing(6)
        native = QKeySequence.SequenceFormat.NativeText
        everywhere = [(plain_name(a), (a.shortcuts()[0].toString(native),)) for a in actions if a.shortcuts()]
        for words, keys in (*everywhere, *MORE_KEYS, (TIMELINE, ()), *((key.words, key.keys) for key in KEYS)):
            at = grid.rowCount()
            grid.addWidget(label(words, "secondary") if keys else Heading(words), at, 0)
            each = (label(key, "key") for key in keys)
            grid.addLayout(row(None, *each, spacing=4), at, 1)
        scroll = Scrolled(grid, "shortcuts_scroll")
        self.column.addWidget(scroll)
        self.add_close()
        bar, around = scroll.verticalScrollBar().sizeHint().width(), self.sizeHint() - scroll.sizeHint()
        whole = scroll.sheet.sizeHint() + around + QSize(bar + 2, 2)
        self.resize(whole.boundedTo(parent.size() * 0.9))
