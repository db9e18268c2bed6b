"""A race of the demo model, small and short, and one lane of it as a run."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication

from app.ui.look import theme
from engine import Race, SamplingParams, Workload, parse_lanes, save_trace
from engine.compare import LocalHost, save_race
from engine.workloads import Arrival


@dataclass(frozen=True)
class Files:
    race: Path
    run: Path


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    params = SamplingParams(temperature=0, ignore_eos=True)
    told = enumerate(("fox", "owl", "hen"), 1)
    arrivals = (Arrival(0.0, f"A story about a {word}.", params.with_(max_tokens=8 * n)) for n, word in told)
    workload = Workload("foxes", tuple(arrivals), title="Foxes and owls")
    folder = tmp_path_factory.mktemp("played")
    with LocalHost(1) as host:
        lanes = parse_lanes("static:2,continuous:2")
        race = Race(workload, lanes, kv_tokens=512).play(host, lambda event: None, threading.Event())
    result = Files(folder / "foxes.bsrace", folder / "foxes.bsrun")
    save_race(race, result.race)
    save_trace(race.traces(1)[0], result.run)
    return result


@pytest.fixture(autouse=True)
def theme_as_before(qapp: QApplication) -> Iterator[None]:
    """What draws chooses a theme for its own process."""
    before, zoom = theme.choice(), theme.zoom()
    yield
    theme.set_theme(before)
    theme.set_zoom(zoom)
