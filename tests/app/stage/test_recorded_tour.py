"""The tour without torch: every scene is replayed from its recording, and ends on the picture that it always ended on.

New ones, to be looked at: python -m tests.without_engine packaging/scene_pictures.py --baselines
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontInfo, QGuiApplication, QImage
from pytestqt.qtbot import QtBot

from app import language
from app.stage.scene_file import RUNS, read_scene, read_tour, shipped_tour
from app.window.main_window import MainWindow
from engine import InvalidInput
from tests import without_engine
from tests.app.stage.likeness import MOST, differences, side_by_side

BASELINES = Path(__file__).parent / "baselines"
SCENES = [scene.file.stem for scene in read_tour()]
MOST_BYTES = 150 << 10  # of a recording, on average


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the last picture of every scene, played one after another where there is no torch."""
    folder = tmp_path_factory.mktemp("scenes")
    script = without_engine.ROOT / "packaging" / "scene_pictures.py"
    done = without_engine.run(script, folder, "--recorded", "--quality", "100", data=folder / "data")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_replayed_without_torch_ends_on_its_picture(pictures: Path, scene: str) -> None:
    shown, baseline = (QImage(str(folder / f"scene-{scene}.png")) for folder in (pictures, BASELINES))
    assert not shown.isNull(), "the scene was not played to its end"
    font = QFontInfo(QGuiApplication.font()).family()
    if baseline.text("font") != font:
        pytest.skip(f"the pictures were made with the font {baseline.text('font')}, here is {font}")
    found = int(differences(shown, baseline).sum())
    if found > MOST:
        file = pictures / f"difference-{scene}.png"
        side_by_side(shown, baseline, file)
        pytest.fail(f"{found} blocks of the picture are others: look at {file}, above the picture as it was")


def test_every_shipped_scene_has_a_small_recording_that_tells_nothing_of_who_made_it() -> None:
    files = [scene.run for scene in read_tour()]
    assert None not in files
    assert {file.stem for file in (shipped_tour() / RUNS).iterdir()} == set(SCENES)
    assert sum(file.stat().st_size for file in files if file is not None) < MOST_BYTES * len(files)


def test_a_scene_of_ones_own_names_its_recording(tmp_path: Path) -> None:
    shipped = shipped_tour() / "05-static.toml"
    words = shipped.read_text()
    file = tmp_path / "mine.toml"
    file.write_text(words)
    assert read_scene(file).run is None
    file.write_text(words.replace("[[points]]", 'run = "talk.bsrun"\n\n[[points]]', 1))
    with pytest.raises(InvalidInput, match=r"line \d+: run='talk\.bsrun': no such file; name a \*\.bsrun beside"):
        read_scene(file)
    (tmp_path / "talk.bsrun").write_bytes((shipped_tour() / RUNS / "05-static.bsrun").read_bytes())
    assert read_scene(file).run == tmp_path / "talk.bsrun"


@pytest.fixture
def german() -> Iterator[None]:
    language.speak(["de"])
    yield
    language.speak(["en"])


def test_a_shipped_scene_is_told_in_the_language_of_the_window_and_ones_own_as_it_is_written(
    qtbot: QtBot, german: None, window: MainWindow, tmp_path: Path
) -> None:
    shipped = shipped_tour() / "23-speculation.toml"
    words, recorded = shipped.read_text(), shipped_tour() / RUNS / "23-speculation.bsrace"
    words = words.replace('title = "Speculation:', 'run = "mine.bsrace"\ntitle = "My own:')
    words = words.replace("name=Without drafts", "name=Plainly").replace("The same {2", "Just {2")
    (tmp_path / "mine.toml").write_text(words)
    (tmp_path / "mine.bsrace").write_bytes(recorded.read_bytes())
    scenes = read_scene(shipped), read_scene(tmp_path / "mine.toml")
    assert scenes[0].title.startswith("Speculation"), "it is read as it is written"

    window.touring.recorded = True
    window.touring.take(scenes)
    tour, bar = window.touring.tour, window.touring.bar
    assert tour is not None
    tour.replays = False

    def said_of(number: int) -> tuple[str, str, list[str]]:
        qtbot.waitUntil(lambda: tour.number == number and tour.over and tour.words != "", timeout=20_000)
        assert window.compare is not None
        return bar.title.text(), tour.words, [view.lane.name for view in window.compare.views]

    title, last, lanes = said_of(0)
    assert (title, lanes) == ("Spekulation: raten und auf einmal prüfen", ["Ohne Drafts", "Mit Drafts"])
    assert last.startswith("Dieselben 64 Token: 64 Schritte"), "figures are filled in afterwards"
    assert bar.pointed.text() == last
    assert bar.caption.text().startswith("Ein kleines Draft-Modell")
    assert bar.question.text().startswith("Warum ist die Antwort")
    assert bar.accessibleName().endswith(f"{title}. {bar.caption.text()}")
    bar.answer.click()
    assert "Geratenes bleibt nur" in bar.question.text()

    qtbot.keyClick(window, Qt.Key.Key_F5, Qt.KeyboardModifier.ShiftModifier)
    notes = window.presenting.notes
    assert notes is not None
    assert notes.notes.text().startswith("Ein kleines Modell rät")
    assert notes.title.text() == title
    assert "My own" in notes.then.text()

    tour.go(1)
    title, last, lanes = said_of(1)
    assert title.startswith("My own: guess ahead")
    assert last.startswith("Just 64 tokens: 64 steps")
    window.touring.leave()
    qtbot.waitUntil(lambda: window.touring.tour is None)
