"""What a person can ask of the window: every action with its keys, for the menu, the palette and the list of keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QAction, QDesktopServices, QKeySequence
from PySide6.QtWidgets import QMainWindow, QMenu

from app import storage
from app.desktop.command_palette import CommandPalette
from app.desktop.shortcuts import Group, Shortcut, ShortcutsDialog, of_actions
from app.language import tr
from app.preferences import THEME, ZOOM
from app.ui.look import theme
from app.ui.prompt_edit import HISTORY_KEYS
from app.window.pages import Pages

if TYPE_CHECKING:
    from app.desktop.settings.setting import Section


def page_action(title: str) -> str:
    """What going to a page is called, and so are the keys of that page."""
    return tr("{page} page", page=title)


class WindowActions(QObject):
    """Keeps `all` of them in the order in which the palette shows them, and does what needs no page: theme, zoom, full
    screen, settings, help."""

    def __init__(self, window: QMainWindow, pages: Pages, titles: Mapping[str, str]) -> None:
        """`titles` of the pages by the names that settings keep, in their order."""
        super().__init__(window)
        self._window, self._pages, self._titles = window, pages, titles
        self._palette = CommandPalette(window)
        self.all: list[QAction] = []
        self.help = QMenu(tr("Help"), window)
        theme.changes.theme_changed.connect(self._on_theme)

    def add(self, text: str, slot: Callable[[], object], *keys: str) -> QAction:
        """An action of the whole window."""
        action = self.tell(text, "", slot)
        action.setShortcuts([QKeySequence(key) for key in keys])
        self._window.addAction(action)
        return action

    def add_help(self, text: str, slot: Callable[[], object], *keys: str) -> QAction:
        """An action of the whole window that stands in the menu's Help."""
        action = self.add(text, slot, *keys)
        self.help.addAction(action)
        return action

    def tell(self, text: str, key: str, slot: Callable[[], object]) -> QAction:
        """An action that can be found; its key is told, and heard by someone else."""
        action = QAction(text, self._window)
        action.setShortcut(QKeySequence(key))
        action.triggered.connect(lambda checked=False: slot())
        self.all.append(action)
        return action

    def add_appearance(self) -> None:
        self._search = self.add(tr("Search actions …"), self.search, "Ctrl+Shift+P")
        self.settings = self.add(tr("Settings …"), self.show_settings, "Ctrl+,")
        self.add(tr("Larger"), lambda: self._step_zoom(1), "Ctrl++", "Ctrl+=")
        self.add(tr("Smaller"), lambda: self._step_zoom(-1), "Ctrl+-")
        self.add(tr("Normal size"), lambda: theme.set_zoom(1.0), "Ctrl+0")
        self.add(tr("Dark theme"), lambda: theme.set_theme("dark"))
        self.add(tr("Light theme"), lambda: theme.set_theme("light"))
        self.add(tr("Theme of the system"), lambda: theme.set_theme("system"))

    def add_window(self) -> None:
        self.full_screen = self.add(tr("Full screen"), self._on_full_screen, "F11")
        self.add(tr("Show the folder of runs"), self._on_runs_folder)
        self.add_help(
            tr("Keyboard shortcuts"), lambda: ShortcutsDialog(self._window, self.key_groups()).open(), "F1", "?"
        )
        self.quit = self.add(tr("Quit"), self._window.close, "Ctrl+Q")

    def search(self) -> None:
        """Opens the palette."""
        focused = self._window.focusWidget()
        self._palette.open([action for action in self.all if action is not self._search], focused)

    def add_settings(self) -> None:
        """Each setting by its name, for the palette."""
        for section in self._sections():
            for setting in section.settings:
                self.tell(
                    tr("Setting: {title}", title=setting.title), "", partial(self.show_settings, setting.preference.key)
                )

    def show_settings(self, key: str = "") -> None:
        """The dialog; with the key of a setting, at that one."""
        from app.desktop.settings.dialog import SettingsDialog  # not before the window's first paint

        dialog = SettingsDialog(self._window, self._sections())
        dialog.open()
        if key:
            dialog.show_setting(key)

    def _sections(self) -> list[Section]:
        from app.desktop.settings.sections import sections

        return sections(self._titles)

    def key_groups(self) -> list[Group]:
        """Every key of the window, by the place where it is heard."""
        from app.inside.timeline.selection import KEYS

        pages = [self._pages.build(place) for place in range(self._pages.count())]
        own = [action for page in pages for action in page.actions()]
        heard = {*self._window.actions(), *own}
        elsewhere = [action for action in self.all if action not in heard]  # a panel hears their keys
        timeline = tuple(Shortcut(key.words, key.keys) for key in KEYS)
        return [
            of_actions(tr("Everywhere"), self._window.actions()),
            *(
                of_actions(page_action(title), page.actions())
                for title, page in zip(self._titles.values(), pages, strict=True)
            ),
            of_actions(tr("Where a run is on show, outside of texts"), elsewhere),
            Group(tr("Timeline, when it has the focus"), timeline),
            Group(tr("Prompt"), (Shortcut(tr("Walk through sent prompts"), HISTORY_KEYS),)),
        ]

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
        THEME.set(theme.choice())
        ZOOM.set(theme.chosen_zoom())
