"""What the app keeps is for its owner alone."""

import stat
from pathlib import Path

import pytest
from PySide6.QtCore import QByteArray, Qt
from PySide6.QtWidgets import QHeaderView

from app import storage
from engine import InvalidInput


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_data_folder_is_made_for_its_owner_and_a_chosen_one_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHSCOPE_DATA", str(tmp_path / "deeper" / "new"))
    storage.keep_private()
    assert mode(storage.data()) == 0o700
    chosen = tmp_path / "chosen"
    chosen.mkdir(0o755)
    monkeypatch.setenv("BATCHSCOPE_DATA", str(chosen))
    storage.keep_private()
    assert mode(chosen) == 0o755


def test_the_data_folder_of_an_older_version_becomes_its_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BATCHSCOPE_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "batchscope").mkdir(0o755)
    storage.keep_private()
    assert storage.data() == tmp_path / "batchscope"
    assert mode(storage.data()) == 0o700


def test_a_folder_that_cannot_be_made_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"cannot write to the folder .*file/x: Not a directory; choose another"):
        storage.made(tmp_path / "file" / "x")
    monkeypatch.setenv("BATCHSCOPE_DATA", str(tmp_path / "file"))
    with pytest.raises(InvalidInput, match="set BATCHSCOPE_DATA to another"):
        storage.made(storage.data() / "demo")


@pytest.mark.usefixtures("qapp")
def test_of_a_state_of_qts_no_damaged_byte_comes_back() -> None:
    whole = QHeaderView(Qt.Orientation.Horizontal).saveState()
    storage.keep_state("columns", whole)
    assert storage.kept_state("columns") == whole
    assert storage.kept_state("never kept") is None
    kept = storage.settings().value("columns").data()
    for place in range(len(kept)):
        storage.settings().setValue(
            "columns", QByteArray(kept[:place] + bytes([kept[place] ^ 0x40]) + kept[place + 1 :])
        )
        assert storage.kept_state("columns") is None
    for other in (QByteArray(), QByteArray(b"short"), "text", 5, ["a", "b"], whole):
        storage.settings().setValue("columns", other)
        assert storage.kept_state("columns") is None
