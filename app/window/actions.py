"""What a person can ask of the window: every action with its keys, for the menu, the palette and the list of keys."""

from collections.abc import Callable

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QAction, QDesktopServices, QKeySequence
from PySide6.QtWidgets import QMainWindow

from app import storage
from app.ui import theme
from app.window.command_palette import CommandPalette
from app.window.dialogs import SettingsDialog, ShortcutsDialog


class WindowActions(QObject):
    """Keeps `all` of them in the order in which the palette shows them, and does what needs no page: theme, zoom, full
    screen, settings, help."""

    def __init__(self, window: QMainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._palette = CommandPalette(window)
        self.all: list[QAction] = []
        theme.changes.theme_changed.connect(self._on_theme)

    def add(self, text: str, slot: Callable[[], object], *keys: str) -> QAction:
        """An action of the whole window."""
        action = self.tell(text, "", slot)
        action.setShortcuts([QKeySequence(key) for key in keys])
        self._window.addAction(action)
        return action

    def tell(self, text: str, key: str, slot: Callable[[], object]) -> QAction:
        """An action that can be found; its key is told, and heard by someone else."""
        action = QAction(text, self._window)
        action.setShortcut(QKeySequence(key))
        action.triggered.connect(lambda checked=False: slot())
        self.all.append(action)
        return action

    def add_appearance(self) -> None:
        self._search = self.add("Search actions …", self.search, "Ctrl+Shift+P")
        self.settings = self.add("Settings …", lambda: SettingsDialog(self._window).open(), "Ctrl+,")
        self.add("Larger", lambda: self._step_zoom(1), "Ctrl++", "Ctrl+=")
        self.add("Smaller", lambda: self._step_zoom(-1), "Ctrl+-")
        self.add("Normal size", lambda: theme.set_zoom(1.0), "Ctrl+0")
        self.add("Dark theme", lambda: theme.set_theme("dark"))
        self.add("Light theme", lambda: theme.set_theme("light"))
        self.add("Theme of the system", lambda: theme.set_theme("system"))

    def add_window(self) -> None:
        self.full_screen = self.add("Full screen", self._on_full_screen, "F11")
        self.add("Show the folder of runs", self._on_runs_folder)
        self.keys = self.add("Keyboard shortcuts", lambda: ShortcutsDialog(self._window, self.all).open(), "F1")
        self.quit = self.add("Quit", self._window.close, "Ctrl+Q")

    def search(self) -> None:
        """Opens the palette."""
        focused = self._window.focusWidget()
        self._palette.open([action for action in self.all if action is not self._search], focused)

    def _step_zoom(self, by: int) -> None:
        zooms = theme.ZOOMS
        nearest = min(range(len(zooms)), key=lambda i: abs(zooms[i] - theme.chosen_zoom()))
        theme.set_zoom(zooms[min(max(nearest + by, 0), len(zooms) - 1)])

    def _on_full_screen(self) -> None:
        if self._window.isFullScreen():
            self._window.showNormal()
        else:
            self._window.showFullScreen()

    def _on_runs_folder(self) -> None:
        storage.runs().mkdir(parents=True, exist_ok=True)
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(storage.runs())))

    def _on_theme(self) -> None:
        kept = storage.settings()
        kept.setValue("window/theme", theme.choice())
        kept.setValue("window/zoom", theme.chosen_zoom())
