"""A figure is drawn in the language of the window that asks for it."""

import re
from pathlib import Path

import pytest

from app import language
from app.figure.job import draw
from app.figure.subject import RACE, Figure, Subject
from app.language import tr
from tests.app.figure.conftest import Files


@pytest.mark.parametrize("spoken", ["en", "de"])
def test_a_race_is_drawn_in_the_language_that_is_spoken(spoken: str, files: Files, tmp_path: Path) -> None:
    path = tmp_path / "race.svg"
    try:
        language.speak([spoken])
        done = tr("done in {time}", time="").strip()
        if spoken != "en" and done == "done in":
            pytest.skip("the catalog does not say it yet")
        draw(Figure(Subject(str(files.race), RACE).checked(), "column"), path, None, None)
    finally:
        language.speak(["en"])
    labels = re.findall(r'aria-label="([^"]*)"', path.read_text(encoding="utf-8"))
    assert any(label.startswith(done) for label in labels)
    assert spoken == "en" or not any(label.startswith("done in") for label in labels)
