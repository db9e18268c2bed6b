"""`batchscope tour` without a display, and with scenes that are wrong."""

from pathlib import Path

import pytest

from app.__main__ import main
from app.stage.scene_file import read_tour, shipped_tour


def test_the_tour_is_listed_with_the_command_of_each_scene(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tour", "--list"]) == 0
    told = capsys.readouterr().out
    for scene in read_tour():
        assert scene.title in told
        assert scene.command in told


def test_without_a_display_it_says_what_does_without_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["tour"]) == 2
    assert "--list" in capsys.readouterr().err


def test_a_broken_scene_ends_with_status_2_and_one_line_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = (shipped_tour() / "05-static.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(shipped.replace("static:4", "statics:4"), encoding="utf-8")
    line = shipped.splitlines().index('lanes = ["static:4"]') + 1
    assert main(["tour", str(path), "--list"]) == 2
    told = capsys.readouterr().err
    assert f"{path}, line {line}: " in told
    assert told.count("\n") == 1
