"""Animations: every frame at its moment, and the end of the run at the end."""

from pathlib import Path

import numpy as np
import pytest
from PySide6.QtWidgets import QApplication

from app.figure.drawing import drawn_film, laid_out, read
from app.figure.film_file import picture_of
from app.figure.show import show_of
from app.figure.subject import REST, Film, Subject, check_video
from engine import InvalidInput
from engine.trace import Array
from tests.app.figure.conftest import Files

av = pytest.importorskip("av")
SIZE, SECONDS, FPS = (640, 480), 2.0, 10


def film(file: Path, path: Path, panel: str = "") -> Film:
    what = Film(Subject(str(file), panel), SECONDS, SIZE, FPS).checked()
    drawn_film(what, read(what.subject, lambda progress: None), path, lambda progress: None)
    return what


def pictures(path: Path) -> tuple[list[Array], float]:
    """Its frames [height, width, 3], and how many seconds it lasts."""
    if path.suffix == ".webp":
        image = pytest.importorskip("PIL.Image").open(path)
        found, lasts = [], 0.0
        for number in range(image.n_frames):
            image.seek(number)
            frame = np.asarray(image.convert("RGB"), int)
            found += [frame] * round(image.info["duration"] / 1000 * FPS)  # those that are the same are one
            lasts += image.info["duration"] / 1000
        return found, lasts
    with av.open(str(path)) as file:
        return [frame.to_ndarray(format="rgb24").astype(int) for frame in file.decode(video=0)], file.duration / 1e6


@pytest.mark.parametrize("ending", [".webm", ".gif", ".webp"])
def test_it_has_its_frames_lasts_its_seconds_and_ends_as_the_race_did(
    files: Files, ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a{ending}"
    what = film(files.race, path)
    found, lasts = pictures(path)
    assert lasts == pytest.approx(SECONDS, abs=0.11)
    assert len(found) == what.frames == SECONDS * FPS
    with laid_out(show_of(read(what.subject, lambda progress: None), what.subject, told=True)) as show:
        show.arrange(SIZE[0])
        show.setFixedSize(*SIZE)
        show.fit(SIZE[1])
        show.pose(what.subject.look)
        show.go(show.span)
        QApplication.sendPostedEvents()
        end = picture_of(show)[:, :, 2::-1].astype(int)
    assert found[-1].shape == end.shape
    assert np.abs(found[-1] - end).mean() < {".webm": 3.0, ".gif": 2.0, ".webp": 0.01}[ending]
    assert np.abs(found[0] - end).mean() > 2.0, "nothing has happened at its beginning"
    assert np.abs(found[-2] - found[-1]).mean() < 1.0, "it rests at its end"
    assert path.stat().st_size < 2_000_000


def test_every_frame_shows_its_own_moment() -> None:
    what = Film(Subject("a.bsrun"), SECONDS, SIZE, FPS)
    shares = [what.share(frame) for frame in range(what.frames)]
    assert shares[0] == 0
    assert shares == sorted(shares)
    moving = shares.index(1.0)
    assert moving == pytest.approx((what.frames - 1) * (1 - REST), abs=1)
    assert np.diff(shares[: moving + 1]) == pytest.approx(1 / moving)


def test_a_runs_panel_moves_too_and_its_file_says_how_to_make_it_again(files: Files, tmp_path: Path) -> None:
    film(files.run, tmp_path / "a.webm", "kv_map")
    with av.open(str(tmp_path / "a.webm")) as file:
        assert "batchscope export foxes.bsrun" in file.metadata["COMMENT"]
        assert file.metadata["title"] == "foxes"
    found, _ = pictures(tmp_path / "a.webm")
    assert np.abs(found[0] - found[len(found) // 2]).mean() > 0.5


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(InvalidInput, match=r"pip install 'batchscope\[video\]'"):
        check_video()
