"""The command line where no engine is installed: what reads runs works, what makes them is refused in one line."""

import json
from pathlib import Path

import pytest

from app.stage.scene_file import RUNS, shipped_tour
from tests import without_engine

RUN, RACE = shipped_tour() / RUNS / "10-paging.bsrun", shipped_tour() / RUNS / "09-fragmentation.bsrace"
SENTENCE = "batchscope: this is the viewer: install Batchscope in full to run models"
REFUSED = "run --workload burst", "compare --workload burst --lanes static:4", "bench", "models", "compress hello", ""
PROGRAM = """
import contextlib, io, json, sys
from app.__main__ import main
told = []
for line in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        status = main(line)
    told.append((status, said.getvalue().strip()))
print(json.dumps(told))
"""


def told(lines: list[list[str]], data: Path) -> list[tuple[int, str]]:
    """The status of each command, and what it said on stderr; all in one process."""
    done = without_engine.run("-c", PROGRAM, json.dumps(lines), data=data)
    assert done.returncode == 0, done.stderr
    return [(status, said) for status, said in json.loads(done.stdout.splitlines()[-1])]


def test_runs_and_races_are_exported_drawn_and_listed(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("run.html", "run.json", "run.csv", "race.html")]
    lines = [["export", str(RACE if file.stem == "race" else RUN), "--to", str(file)] for file in files]
    lines += [["tour", "--list"], ["replay", str(RUN), "--pictures", str(tmp_path / "pictures")]]
    assert [status for status, _ in told(lines, tmp_path / "data")] == [0] * len(lines)
    assert all(file.stat().st_size > 1000 for file in files)
    assert (tmp_path / "pictures" / "inside.png").is_file()


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    return dict(zip(REFUSED, told([line.split() for line in REFUSED], tmp_path_factory.mktemp("data"))))


@pytest.mark.parametrize("line", REFUSED)
def test_what_runs_models_is_refused_in_one_line(line: str, refused: dict[str, tuple[int, str]]) -> None:
    assert refused[line] == (2, SENTENCE)
