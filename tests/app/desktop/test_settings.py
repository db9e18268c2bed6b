"""Each setting acts at once, says its default, and comes back to it; all of them come back, and can be undone."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import shiboken6
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app import preferences, storage
from app.desktop.settings.applied import Applied
from app.desktop.settings.dialog import SettingsDialog
from app.desktop.settings.folder_field import FolderField
from app.desktop.settings.row import SettingRow
from app.preferences import KEEP_PROMPTS, MOTION, RUNS_FOLDER, SEND_KEY, STREAM_FONT, THEME, THREADS, ZOOM, Preference
from app.ui.controls import DropDown, Number, Switch
from app.ui.look import motion, theme
from app.window.main_window import MainWindow


@pytest.fixture
def applied(qapp: QApplication) -> Iterator[Applied]:
    applied = Applied(qapp)
    yield applied
    applied.setParent(None)
    applied.deleteLater()
    motion.set_motion("system")
    theme.set_stream_font("")


@pytest.fixture
def dialog(window: MainWindow, applied: Applied) -> Iterator[SettingsDialog]:
    window.window_actions.add_settings()
    window.window_actions.show_settings()
    dialog = window.findChild(SettingsDialog)
    assert dialog is not None
    yield dialog
    if shiboken6.isValid(dialog):
        dialog.accept()


def row_of(dialog: SettingsDialog, preference: Preference) -> SettingRow:
    return next(row for row in dialog.rows if row.setting.preference is preference)


def choose(row: SettingRow, value: object) -> None:
    """As a person does."""
    match control := row.control:
        case DropDown():
            control.set_value(value)
            control.activated.emit(control.currentIndex())
        case Switch():
            control.click()
        case Number():
            assert isinstance(value, int)
            control.setValue(value)
        case FolderField():
            control.edit.setText(str(value))
            control.edit.editingFinished.emit()


def test_what_is_chosen_acts_at_once_and_all_of_it_can_be_brought_back(
    qtbot: QtBot, window: MainWindow, dialog: SettingsDialog, tmp_path: Path
) -> None:
    composer = window.page.composer
    composer.prompt.remember("Tell me of a secret.")
    composer._keep()
    chosen = {THEME: "light", ZOOM: 1.25, MOTION: "off", STREAM_FONT: "DejaVu Sans Mono", SEND_KEY: "enter"}
    chosen |= {THREADS: 1, KEEP_PROMPTS: False, RUNS_FOLDER: tmp_path / "my runs"}
    for preference, value in chosen.items():
        row = row_of(dialog, preference)
        assert row.reset.isHidden()
        choose(row, value)
        assert not row.reset.isHidden()
        assert row.reset.accessibleName()

    def in_force() -> bool:
        sent = storage.settings().value("composer/history")
        return (
            theme.current() is theme.LIGHT
            and theme.zoom() == 1.25
            and not motion.moving()
            and theme.mono().families()[0] == "DejaVu Sans Mono"
            and composer.prompt.enter_sends
            and THREADS.value == 1
            and sent is None
            and storage.runs() == tmp_path / "my runs"
        )

    assert in_force()
    assert (tmp_path / "my runs").is_dir()
    dialog.findChild(object, "settings_restore").click()  # type: ignore[attr-defined]
    assert not preferences.values()
    assert theme.zoom() == 1.0
    assert storage.runs() == storage.data() / "runs"
    assert not composer.prompt.enter_sends
    assert all(row.reset.isHidden() for row in dialog.rows)
    dialog.undo.click()
    assert in_force()
    row_of(dialog, SEND_KEY).reset.click()
    assert not composer.prompt.enter_sends


def test_a_folder_that_cannot_be_written_to_is_refused_by_name(
    qtbot: QtBot, dialog: SettingsDialog, tmp_path: Path
) -> None:
    row = row_of(dialog, RUNS_FOLDER)
    (tmp_path / "a file").touch()
    for wrong in (str(tmp_path / "a file"), "not/whole", "/proc/none"):
        choose(row, wrong)
        assert row.note.text().startswith(wrong)
        assert "Choose another folder" in row.note.text()
        assert not RUNS_FOLDER.changed


def test_a_setting_is_found_in_the_dialog_and_in_the_palette(
    qtbot: QtBot, window: MainWindow, dialog: SettingsDialog
) -> None:
    dialog.search.setText("log file")
    assert [row.setting.title for row in dialog.rows if not row.isHidden()] == ["Keep a log file"]
    dialog.search.setText("no such thing")
    assert "no such thing" in dialog.empty.text()
    dialog.search.clear()
    assert not any(row.isHidden() for row in dialog.rows)
    dialog.accept()
    (found,) = [action for action in window.commands if action.text() == "Setting: Motion"]
    found.trigger()
    opened = window.findChildren(SettingsDialog)[-1]
    assert opened.focusWidget() is row_of(opened, MOTION).control
    opened.accept()


@pytest.mark.parametrize("zoom", [1.0, 1.5])
def test_the_dialog_fits_a_projector_and_every_setting_can_be_reached(
    qtbot: QtBot, window: MainWindow, dialog: SettingsDialog, zoom: float
) -> None:
    window.resize(1280, 720)
    theme.set_zoom(zoom)
    assert dialog.width() <= 1280
    assert dialog.height() <= 720
    reached, widget = set(), dialog.search
    for _ in range(200):
        reached.add(widget)
        widget = widget.nextInFocusChain()  # type: ignore[assignment]
    for row in dialog.rows:
        control = row.control.edit if isinstance(row.control, FolderField) else row.control
        assert control.accessibleName()
        assert control in reached
        assert control.focusPolicy() & Qt.FocusPolicy.TabFocus


def test_enter_sends_where_that_was_chosen_and_shift_enter_begins_a_line(
    qtbot: QtBot, window: MainWindow, applied: Applied
) -> None:
    prompt = window.page.composer.prompt
    prompt.setPlainText("one")
    SEND_KEY.set("enter")
    with qtbot.waitSignal(prompt.entered):
        qtbot.keyClick(prompt, Qt.Key.Key_Return)
    assert prompt.toPlainText() == "one"
    qtbot.keyClick(prompt, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert "\n" in prompt.toPlainText() or "\u2028" in prompt.toPlainText()


def test_the_hub_is_as_it_was_chosen_unless_the_environment_says_otherwise(
    applied: Applied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.desktop.settings import applied as module
    from engine.checkpoints import cache_folder
    from engine.jobs import assume, spawn

    monkeypatch.setattr(spawn, "BEGUN", dict(spawn.BEGUN))
    for name in (module.CACHE, module.OFFLINE):
        monkeypatch.setenv(name, "")
        assume({name: None})
    monkeypatch.setattr(module, "GIVEN", {})
    preferences.HUB_FOLDER.set(str(tmp_path))
    preferences.HUB_OFFLINE.set(True)
    assert cache_folder() == tmp_path
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    preferences.take({})
    assert "HF_HUB_OFFLINE" not in os.environ
    monkeypatch.setattr(module, "GIVEN", {module.OFFLINE: "0"})
    preferences.HUB_OFFLINE.set(True)
    assert "HF_HUB_OFFLINE" not in os.environ
    preferences.take({})
