"""How to make a run again, tried: the same tokens come out; and how to cite it."""

import shlex
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from app.__main__ import main, parser
from app.cli.shared.lanes import Asked
from engine import Race, Trace
from engine.compare import LocalHost, RaceResult, save_race
from engine.export import Source, commands, export
from engine.export.reproduction import AUTHOR, RELEASED

RACES = (
    "--workload mixed-lengths --count 4 --seed 5 --temperature 0.9 --max-tokens 8 "
    "--lanes continuous:4:beams=2,static:3:deliver=batch,chunked:4:budget=64:prefix,dynamic:2:wait=0.05",
    "--workload burst --count 5 --n 2 --temperature 1 --top-k 20 --max-tokens 12 --kv-tokens 512 --concurrency 2 "
    "--lanes continuous:4:kv=int8:block=8,continuous:4:preemption=swap:speculation=ngram:k=3",
)


@pytest.fixture
def host() -> Iterator[LocalHost]:
    with LocalHost(1) as host:
        yield host


def play(host: LocalHost, line: str) -> RaceResult:
    """What `batchscope compare` does with such a line."""
    given = parser().parse_args(shlex.split(line)[1:])
    asked = Asked.of(given, given.lanes)
    pool = {"kv_tokens": given.kv_tokens, "kv_memory": given.kv_memory}
    race = Race(asked.workload, asked.lanes, repeats=given.repeats, order=given.order, seed=asked.seed, **pool)
    return race.play(host, lambda event: None, threading.Event())


def again(host: LocalHost, source: Source) -> RaceResult:
    """The run or race that its own commands make."""
    prompts, compare = commands(source)
    export(source, Path(shlex.split(prompts)[-1]))
    return play(host, compare)


def tokens(trace: Trace) -> list[list[list[int]]]:
    return [[sample.tokens.tolist() for sample in view.samples] for view in trace.requests.values()]


@pytest.mark.parametrize("asked", RACES)
def test_the_commands_of_a_race_and_of_its_runs_give_the_same_tokens(
    host: LocalHost, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    race = play(host, f"batchscope compare {asked}")
    save_race(race, Path("a race.bsrace"))
    played = again(host, Source.read([Path("a race.bsrace")]))
    assert played.lanes == race.lanes
    for lane in range(len(race.lanes)):
        assert not race.error(lane)
        (one,), (other,) = race.traces(lane), played.traces(lane)
        assert tokens(one) == tokens(other)
        assert any(map(len, tokens(one)[0]))
    alone = race.traces(1)[0]
    (other,) = again(host, Source.of_trace(alone, "typed", "typed.bsrun")).traces(0)
    assert tokens(alone) == tokens(other)
    assert other.header.config.max_running == alone.header.config.max_running
    assert other.header.blocks == alone.header.blocks


def test_the_citation_file_says_what_the_project_does(capsys: pytest.CaptureFixture[str]) -> None:
    said = yaml.safe_load(Path("CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    release = ElementTree.parse("resources/desktop/batchscope.metainfo.xml").getroot().find("releases/release")
    assert release is not None
    assert said["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= said.keys()  # what the format asks for
    assert said["type"] == "software"
    assert (said["version"], str(said["date-released"])) == (project["version"], RELEASED)
    assert (release.get("version"), release.get("date")) == (project["version"], RELEASED)
    assert said["license"] == project["license"]
    assert [author["name"] for author in said["authors"]] == [AUTHOR]
    assert said["keywords"] == project["keywords"]
    assert main(["--cite"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("@software{batchscope,")
    assert f"version = {{{project['version']}}}" in told
    assert AUTHOR in told
