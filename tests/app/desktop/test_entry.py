"""Batchscope in a desktop's menu: what is written is valid, starts this installation, and goes again."""

import os
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from app.__main__ import main, with_command
from app.desktop.entry import FILES, _quoted

TYPE = """
import sys
from PySide6.QtCore import QMimeDatabase
for name in sys.argv[1:]:
    found = QMimeDatabase().mimeTypeForFile(name, QMimeDatabase.MatchMode.MatchExtension)
    print(found.name(), found.iconName())
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "a home" / "share"
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    return home


def test_it_is_installed_valid_and_leaves_nothing_when_it_goes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--install-desktop"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.removeprefix("installed  ") for line in told] == [str(home / place) for place in FILES]
    entry = ConfigParser(interpolation=None)
    entry.optionxform = str  # type: ignore[assignment,method-assign]
    entry.read(home / "applications" / "batchscope.desktop", encoding="utf-8")
    command = shlex.split(entry["Desktop Entry"]["Exec"])
    assert command[-1] == "%f"
    done = subprocess.run([*command[:-1], "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("batchscope ")
    if validate := shutil.which("desktop-file-validate"):
        subprocess.run([validate, str(home / "applications" / "batchscope.desktop")], check=True)
    if validate := shutil.which("appstreamcli"):
        metainfo = str(home / "metainfo" / "batchscope.metainfo.xml")
        checked = subprocess.run(
            [validate, "validate", "--no-net", metainfo], capture_output=True, text=True, check=False
        )
        assert "E:" not in checked.stdout
    assert main(["--uninstall-desktop"]) == 0
    assert not [path for place in FILES if (path := home / place).exists()]
    assert main(["--uninstall-desktop"]) == 0


@pytest.mark.skipif(shutil.which("update-mime-database") is None, reason="no shared-mime-info here")
def test_a_desktop_knows_runs_and_races(home: Path) -> None:
    assert main(["--install-desktop"]) == 0
    files = "a run.bsrun", "a race.bsrace"
    environment = {**os.environ, "XDG_DATA_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", TYPE, *files], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    kinds = [f"application/x-batchscope-{kind} application-x-batchscope-{kind}" for kind in ("run", "race")]
    assert done.stdout.splitlines() == kinds


def test_a_folder_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    assert main(["--install-desktop"]) == 2
    assert f"cannot write {tmp_path}/file/applications" in capsys.readouterr().err


def test_a_path_of_any_name_is_quoted_for_a_desktop() -> None:
    assert _quoted("/usr/bin/batchscope") == "/usr/bin/batchscope"
    assert _quoted("/a b/$x") == '"/a b/\\\\$x"'
    assert _quoted("/100%/x") == "/100%%/x"


def test_the_file_that_a_desktop_opens_is_replayed() -> None:
    assert with_command(["/a/b c.bsrun"]) == ["replay", "/a/b c.bsrun"]
    assert with_command(["x.bsrace"]) == ["replay", "x.bsrace"]
    assert with_command(["run", "--prompts", "x.bsrun"]) == ["run", "--prompts", "x.bsrun"]
    assert with_command([]) == []
