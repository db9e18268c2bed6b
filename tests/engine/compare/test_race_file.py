"""A race kept in one file: what is read back, and what is refused."""

import json
import resource
import threading
import zipfile
from pathlib import Path

import pytest

from engine import Engine, InvalidInput
from engine.compare import RaceResult, agreement, compare_race, load_race, save_race
from engine.jobs import LoadCancelled
from tests.engine.compare.test_race import Lender, race


@pytest.fixture(scope="module")
def raced(demo_engine: Engine) -> RaceResult:
    """Two lanes, twice, and one that fails."""
    lanes = "continuous:2,static:4:name=four,continuous:2:block=4096"
    return race(lanes, repeats=2, kv_tokens=1024).play(Lender(demo_engine), lambda event: None, threading.Event())


@pytest.fixture
def file(raced: RaceResult, tmp_path: Path) -> Path:
    path = tmp_path / "new" / "mine.bsrace"
    save_race(raced, path, "as asked")
    return path


def test_a_race_that_is_read_back_is_the_same_race(raced: RaceResult, file: Path) -> None:
    read: list[tuple[int, int]] = []
    back, asked = load_race(file, lambda done, total: read.append((done, total)))
    assert asked == "as asked"
    assert (back.lanes, back.workload, back.kv_memory) == (raced.lanes, raced.workload, raced.kv_memory)
    assert compare_race(back) == compare_race(raced)
    assert back.error(2) == raced.error(2) != ""
    assert [(r.lane, r.repeat, r.others) for r in back.lane_runs] == [
        (r.lane, r.repeat, r.others) for r in raced.lane_runs
    ]
    assert agreement(back.traces(0)[0], raced.traces(0)[0]).text() == "same tokens in every request"
    assert read == [(i, 6) for i in range(6)]
    assert sorted(p.name for p in file.parent.iterdir()) == ["mine.bsrace"], "nothing is left beside it"
    assert file.stat().st_mode & 0o077 == 0
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(LoadCancelled):
        load_race(file, cancelled=stopped)


def changed(file: Path, **changes: object) -> Path:
    """The file with another index."""
    with zipfile.ZipFile(file) as old:
        index = json.loads(old.read("race.json")) | changes
        with zipfile.ZipFile(file.with_name("changed.bsrace"), "w") as new:
            for name in old.namelist():
                new.writestr(name, json.dumps(index) if name == "race.json" else old.read(name))
    return file.with_name("changed.bsrace")


RUN = {"lane": 0, "repeat": 0, "error": "", "cancelled": False, "others": None, "file": ""}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 9}, "format 9, this version reads 1"),
        ({"lanes": []}, "0 lanes with 6 runs"),
        ({"lanes": [{"config": {"mode": "magic"}, "spec": {}, "name": ""}]}, "mode='magic'"),
        ({"lanes": 5}, "cannot be read as a race"),
        ({"runs": [RUN | {"lane": 7}]}, "lane 7"),
        ({"runs": [RUN | {"lane": True}]}, "lane True"),
        ({"runs": [RUN | {"others": 7}]}, "others 7"),
        ({"runs": [RUN | {"file": "../../etc/passwd"}]}, "cannot be read as a race"),
        ({"runs": [RUN | {"file": "race.json"}]}, "cannot be read as a Batchscope run"),
        ({"runs": [], "kv_memory": "much"}, "kv_memory='much'"),
        ({"workload": {}}, "cannot be read as a race"),
    ],
)
def test_what_no_race_has_written_is_refused(file: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        load_race(changed(file, **changes))


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_is_packed_in_another_way_is_refused_before_it_is_unpacked(file: Path, packing: int) -> None:
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(file.with_name("other.bsrace"), "w", packing) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(InvalidInput, match=r"other\.bsrace: race\.json is packed in another way"):
        load_race(file.with_name("other.bsrace"))


def test_a_small_file_that_unpacks_to_millions_of_parts_is_refused_before_they_are_read(tmp_path: Path) -> None:
    file = tmp_path / "mine.bsrace"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("race.json", "[" + "{}," * 3_000_000 + "{}]")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidInput, match=r"mine\.bsrace: it says more of itself than a file of a race may"):
        load_race(file)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 80 << 10, "KiB: read as JSON they take 215 MB"


def test_long_values_are_shown_in_part(file: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_race(changed(file, format="x" * 70_000))
    assert len(str(refused.value)) < 400


def test_what_is_no_race_is_refused_by_name(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no race at .*gone\.bsrace"):
        load_race(tmp_path / "gone.bsrace")
    for junk in (b"", b"PK\x03\x04 and so on", file.read_bytes()[:-40]):
        (tmp_path / "junk.bsrace").write_bytes(junk)
        with pytest.raises(InvalidInput, match=r"junk\.bsrace cannot be read as a race"):
            load_race(tmp_path / "junk.bsrace")
    with pytest.raises(InvalidInput, match="cannot write the race"):
        save_race(load_race(file)[0], file / "under-a-file.bsrace")
