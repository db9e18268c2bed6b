"""Without a display: the window plays the demo in a process of its own, as `make run` does."""

from pathlib import Path

from PySide6.QtGui import QImage

from engine import load_trace
from tests.commands import ended

DEMO = "app.window.offscreen.demo"


def test_the_demo_is_played_to_its_end_and_leaves_pictures_and_the_run(tmp_path: Path) -> None:
    done = ended([DEMO, "--out", str(tmp_path)])
    assert done.returncode == 0, done.stderr
    assert "64 of 64 completed" in done.stdout
    for name in ("streaming.png", "finished.png", "demo.bsrun"):
        assert str(tmp_path / name) in done.stdout
    picture = QImage(str(tmp_path / "streaming.png"))
    assert (picture.width(), picture.height()) == (1600, 1000)
    assert all(view.text for view in load_trace(tmp_path / "demo.bsrun").requests.values())


def test_a_load_that_fails_is_told_with_an_exit_code(tmp_path: Path) -> None:
    done = ended([DEMO, "--model", str(tmp_path / "nothing"), "--out", str(tmp_path)])
    assert done.returncode == 1
    assert "no folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_race_is_pictured_and_its_result_printed(tmp_path: Path) -> None:
    lanes = ["--workload", "burst", "--count", "6", "--lanes", "static:2,continuous:4"]
    done = ended([DEMO, "--compare", "--out", str(tmp_path), *lanes])
    assert done.returncode == 0, done.stderr
    assert "output throughput" in done.stdout
    assert "same tokens in every lane" in done.stdout
    for name in ("raced.png", "replay.png"):
        picture = QImage(str(tmp_path / name))
        assert (picture.width(), picture.height()) == (1600, 1000)
