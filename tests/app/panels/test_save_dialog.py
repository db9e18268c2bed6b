"""The dialog that asks where to save: its kinds of file, and the folder of the last time."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QFileDialog, QWidget
from pytestqt.qtbot import QtBot

from app import places
from app.panels.save_dialog import FOLDER, ask_where, remember


def test_what_is_chosen_is_taken_and_its_folder_is_offered_the_next_time(qtbot: QtBot, tmp_path: Path) -> None:
    parent, taken = QWidget(), list[str]()
    qtbot.addWidget(parent)
    ask_where(parent, "where", "Save it", {"Markdown": ".md", "CSV": ".csv"}, "CSV", "race", taken.append)
    dialog = parent.findChild(QFileDialog, "where")
    assert isinstance(dialog, QFileDialog)
    assert dialog.nameFilters() == ["Markdown (*.md)", "CSV (*.csv)"]
    assert dialog.selectedNameFilter() == "CSV (*.csv)"
    assert [Path(name).name for name in dialog.selectedFiles()] == ["race.csv"]
    dialog.fileSelected.emit(str(tmp_path / "race.csv"))
    dialog.close()
    assert taken == [str(tmp_path / "race.csv")]
    remember(Path(taken[0]))
    assert places.settings().value(FOLDER) == str(tmp_path)
