"""All settings in one dialog: found by a word, in force at once, each and all brought back."""

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget

from app import preferences
from app.desktop.settings.row import SettingRow
from app.desktop.settings.setting import Section
from app.language import tr
from app.ui.controls import button, line_edit
from app.ui.labels import Heading, Note
from app.ui.layout.boxes import Scrolled, column, fill, held, row
from app.ui.look import theme
from app.ui.sheets.dialog import Dialog

WIDE, HIGH = 620, 640  # pixels of the design


class SettingsDialog(Dialog):
    """Use `open()`; `show_setting` brings one into sight."""

    def __init__(self, parent: QWidget, sections: Sequence[Section]) -> None:
        super().__init__(parent, "settings_dialog", tr("Settings"))
        self.search = line_edit("settings_search", tr("Search in the settings"), tr("Search"))
        self.search.setClearButtonEnabled(True)
        self.empty = Note("settings_empty")
        self.told = Note("settings_told")
        self.rows: list[SettingRow] = []
        self._headings: list[tuple[Heading, list[SettingRow]]] = []
        self._before: dict[str, Any] = {}
        sheet = column(self.empty, margins=(0, 0, 12, 0), spacing=10)
        for section in sections:
            heading = Heading(section.title)
            rows = [SettingRow(setting) for setting in section.settings]
            self._headings.append((heading, rows))
            self.rows += rows
            fill(sheet, heading, *rows, 10, margins=None)
        sheet.addStretch(1)
        self.area = Scrolled(sheet, "settings_scroll", tr("settings"))
        self.undo = button("settings_undo", tr("Undo"), self._on_undo, role="link")
        self.undo.hide()
        restore = button("settings_restore", tr("Restore defaults"), self._on_restore)
        close = button("settings_close", tr("Close"), self.accept, role="primary")
        for each in (self.undo, restore):
            each.setAutoDefault(False)
        close.setDefault(True)
        foot = row(restore, (held(row((self.told, 1))), 1), self.undo, close, spacing=8)
        fill(self.column, self.search, (self.area, 1), foot, margins=None)
        self.search.textChanged.connect(self._on_search)
        preferences.changes.changed.connect(self._on_changed)
        theme.changes.theme_changed.connect(self._fit)
        self._fit()

    def show_setting(self, key: str) -> None:
        """This one has the focus."""
        found = next(each for each in self.rows if each.setting.preference.key == key)
        found.control.setFocus()
        QTimer.singleShot(0, found, lambda: self.area.ensureWidgetVisible(found, 0, theme.px(40)))

    def _fit(self) -> None:
        """As large as its rows want to be, and never larger than the window."""
        around = self.parentWidget()
        assert around is not None
        self.setMinimumWidth(min(theme.px(420), around.width()))
        self.resize(min(theme.px(WIDE), around.width() - 32), min(theme.px(HIGH), around.height() - 48))

    def _on_search(self, text: str) -> None:
        words = text.lower().split()
        for heading, rows in self._headings:
            shown = [each for each in rows if each.matches(words)]
            heading.setVisible(bool(shown))
            for each in rows:
                each.setVisible(each in shown)
        self.empty.say(
            "" if any(not each.isHidden() for each in self.rows) else tr("No setting says “{text}”.", text=text)
        )

    def _on_changed(self, key: str) -> None:
        for each in self.rows:
            if each.setting.preference.key == key:
                each.show_value()

    def _on_restore(self) -> None:
        self._before = preferences.values()
        with theme.one_change():
            preferences.take({})
        self._say(
            tr("All settings are as they were first.") if self._before else tr("All settings are the defaults already.")
        )
        self.undo.setVisible(bool(self._before))

    def _on_undo(self) -> None:
        with theme.one_change():
            preferences.take(self._before)
        self.undo.hide()
        self._say(tr("Your settings are back."))

    def _say(self, words: str) -> None:
        self.told.say(words)
