"""Files that engines of earlier formats wrote replay as they were live: each was run by the code of its time, which
told its texts, tokens and preemptions beside it. Six prompts of the demo model, twenty blocks of four tokens."""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from engine import InvalidInput, Trace, load_trace, save_trace
from engine.trace import BlockEvent, measure
from engine.trace.records import OLDEST, VERSION

FILES = Path(__file__).parent / "formats"
EARLIER = range(OLDEST, VERSION)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("formats")


@pytest.fixture(params=EARLIER, scope="module")
def number(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def trace(folder: Path, number: int) -> Trace:
    return load_trace(unpacked(folder, number))


def unpacked(folder: Path, number: int) -> Path:
    path = folder / f"format-{number}.bsrun"
    path.write_bytes(gzip.decompress((FILES / f"{path.name}.gz").read_bytes()))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma user_version").fetchone() == (number,)
    return path


def test_there_is_a_file_of_every_earlier_format() -> None:
    assert [f"format-{n}.bsrun.gz" for n in EARLIER] == sorted(path.name for path in FILES.glob("*.gz"))


def test_it_tells_what_its_own_time_told(trace: Trace, number: int) -> None:
    told = json.loads((FILES / f"format-{number}.json").read_text())
    views = trace.requests
    assert {str(i): [view.text, list(view.tokens), view.preemptions] for i, view in views.items()} == told
    assert any(preemptions for _, _, preemptions in told.values())
    assert all(view.ended is not None for view in views.values())
    assert trace.complete


def test_each_token_has_its_part_of_the_text(trace: Trace) -> None:
    for view in trace.requests.values():
        for sample in view.samples:
            ends = list(sample.text_ends)
            assert ends == sorted(ends)
            assert len(ends) == len(sample.tokens)
            assert ends[-1] == len(sample.text)
            assert len(set(ends)) > len(ends) // 2, "a token brings its own letters"


def test_blocks_that_are_held_are_those_that_are_not_free(trace: Trace) -> None:
    """Those of the step under way were taken before its record was written."""
    owners: dict[int, set[tuple[int, int, int]]] = {}
    blocks, held_at_all = trace.header.blocks, 0
    for step in trace.steps:
        columns = step.block_event, step.block, step.block_request, step.block_branch, step.block_place
        for event, block, *owner in zip(*(column.tolist() for column in columns), strict=True):
            request, branch, place = owner
            own = owners.setdefault(block, set())
            if event in (BlockEvent.TAKEN, BlockEvent.SHARED):
                assert event == BlockEvent.SHARED or not own, "nobody had it"
                assert place >= 0
                own.add((request, branch, place))
            elif request >= 0:
                own.remove((request, branch, place))
        held = sum(map(bool, owners.values()))
        held_at_all = max(held_at_all, held)
        assert held == blocks - step.free_blocks - step.cached_blocks
    assert not any(owners.values()), "at the end all are given back"
    assert held_at_all > blocks // 2


def test_it_is_measured_and_written_again_in_todays_format(trace: Trace, tmp_path: Path) -> None:
    save_trace(trace, tmp_path / "now.bsrun")
    now = load_trace(tmp_path / "now.bsrun")
    assert measure(now) == measure(trace)
    assert now.header.version == VERSION
    with closing(sqlite3.connect(tmp_path / "now.bsrun")) as db:
        assert db.execute("pragma user_version").fetchone() == (VERSION,)


def test_a_format_that_never_was_is_refused(folder: Path, tmp_path: Path) -> None:
    path = unpacked(tmp_path, OLDEST)
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma user_version = 0")
    with pytest.raises(InvalidInput, match="format 0, which there never was"):
        load_trace(path)
