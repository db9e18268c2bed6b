"""The menu that copies and saves: its kinds of file, the dialog that asks where, and the folder of the last time."""

from pathlib import Path

from PySide6.QtWidgets import QFileDialog, QWidget
from pytestqt.qtbot import QtBot

from app import storage
from app.ui.export import FOLDER, ExportMenu, text_entry


def test_what_is_chosen_is_written_and_its_folder_is_offered_the_next_time(qtbot: QtBot, tmp_path: Path) -> None:
    parent, said = QWidget(), list[str]()
    qtbot.addWidget(parent)
    entries = [text_entry("Markdown", ".md", lambda: "| a |"), text_entry("CSV", ".csv", lambda: "a\n")]
    menu = ExportMenu(parent, entries, title="Save it", what="The table", stem="race", each="Save as")
    menu.done.connect(said.append)
    assert [action.text() for action in menu.actions() if action.text()] == [
        "Copy as Markdown", "Copy as CSV", "Save as Markdown …", "Save as CSV …",
    ]  # fmt: skip
    menu.ask("CSV")
    dialog = parent.findChild(QFileDialog, "export_dialog")
    assert isinstance(dialog, QFileDialog)
    assert dialog.nameFilters() == ["Markdown (*.md)", "CSV (*.csv)"]
    assert dialog.selectedNameFilter() == "CSV (*.csv)"
    assert [Path(name).name for name in dialog.selectedFiles()] == ["race.csv"]
    dialog.fileSelected.emit(str(tmp_path / "race.csv"))
    dialog.close()
    assert (tmp_path / "race.csv").read_text() == "a\n"
    assert said == [f"The table was saved to {tmp_path / 'race.csv'}."]
    assert storage.settings().value(FOLDER) == str(tmp_path)


def test_what_is_not_there_yet_is_neither_copied_nor_saved(qtbot: QtBot, tmp_path: Path) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    entries = [text_entry("CSV", ".csv", lambda: "a\n")]
    menu = ExportMenu(parent, entries, title="Save it", what="The table", stem="x", ready=lambda: False)
    menu.aboutToShow.emit()
    assert not any(action.isEnabled() for action in menu.actions() if action.text())
    menu.save(tmp_path / "x.csv")
    assert not (tmp_path / "x.csv").exists()
