"""The window where no engine is installed: it shows what was recorded, and says in one sentence what it lacks."""

import json
from typing import Any

import pytest

from tests import without_engine

WORDS = "This is the viewer: install Batchscope in full to run models"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("viewer")
    done = without_engine.run(without_engine.HERE / "window.py", folder / "seen.json", data=folder / "data")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return dict(json.loads((folder / "seen.json").read_text()))


@pytest.mark.timeout(300)
def test_the_viewer_says_what_it_is_and_offers_a_run(seen: dict[str, Any]) -> None:
    assert seen["banner"] == f"Runs, races and the tour are replayed here: {WORDS}."
    assert not seen["composer"], "there is nobody to prompt"
    assert seen["models"] == [False, WORDS]
    assert seen["load"] == [[WORDS[0].lower() + WORDS[1:]], True]


def test_runs_and_races_are_replayed_and_none_is_begun(seen: dict[str, Any]) -> None:
    assert seen["run"]
    assert seen["race"]
    assert seen["race again"] == [False, False, WORDS]
    assert seen["refused"] == WORDS


def test_a_scene_is_replayed_and_says_where_it_was_recorded(seen: dict[str, Any]) -> None:
    assert seen["scene"]
    assert seen["caption"].startswith("recorded 20")
    assert seen["tried"] == [True, WORDS]
    assert seen["left"]
    assert seen["page"], "what was there before the tour is back"


def test_nothing_that_runs_models_was_imported(seen: dict[str, Any]) -> None:
    assert seen["loaded"] == []
