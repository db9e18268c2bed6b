"""`export` as a person meets it."""

import csv
import json
from pathlib import Path

import pytest

from app.__main__ import main
from app.bench.synthetic import synthetic_trace
from engine import Trace, save_trace


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "a run.bsrun"
    save_trace(Trace(synthetic_trace(streams=4, tokens_per_second=200, seconds=2)), path)
    return path


def test_a_run_is_written_as_its_files_endings_say(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("a.json", "a.csv", "a.parquet", "a.jsonl", "a.html")
    files = [run.with_name(name) for name in names]
    assert main(["export", str(run), "--to", *map(str, files)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    told = captured.out.splitlines()
    assert [line.split(": ")[1].split(",")[0] for line in told[:3]] == [
        "trace for Perfetto",
        "table of requests",
        "table of requests",
    ]
    assert "traceEvents" in json.loads(files[0].read_text(encoding="utf-8"))
    assert "batchscope export &#x27;a run.bsrun&#x27;" in files[4].read_text(encoding="utf-8")
    assert main(["export", str(run), "--to", str(run.with_name("s.csv")), "--what", "steps"]) == 0
    with run.with_name("s.csv").open(encoding="utf-8", newline="") as file:
        assert "kv_used" in next(csv.DictReader(file))


def test_several_runs_are_compared(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = run.with_name("another.bsrun")
    save_trace(Trace(synthetic_trace(streams=2, tokens_per_second=100, seconds=2)), other)
    files = [run.with_name(name) for name in ("c.html", "c.csv")]
    assert main(["export", str(run), str(other), "--to", *map(str, files)]) == 0
    page = files[0].read_text(encoding="utf-8")
    for words in ("2 runs side by side", "continuous · 4", "continuous · 2", "<dd>a run.bsrun</dd>"):
        assert words in page
    assert page.count("batchscope compare --workload") == 2
    with files[1].open(encoding="utf-8", newline="") as file:
        assert {row["lane"] for row in csv.DictReader(file)} == {"continuous · 4", "continuous · 2"}
    assert main(["export", str(run), str(other), "--to", str(run.with_name("c.jsonl"))]) == 2
    assert "prompts are those of one run" in capsys.readouterr().err
    assert main(["export", str(run), str(run.with_name("a.bsrace")), "--to", "d.html"]) == 2
    assert "a.bsrace is a race; it is exported alone" in capsys.readouterr().err


def test_bad_input_is_told_in_one_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = run.with_name("there.csv")
    there.touch()
    for arguments, words in (
        (["--to", str(there)], f"{there} exists; choose another name"),
        (["--to", "a.doc"], "'a.doc' does not tell what to write"),
        (["--to", "a.csv", "--what", "perfetto"], "perfetto cannot be written as 'a.csv'"),
    ):
        assert main(["export", str(run), *arguments]) == 2
        err = capsys.readouterr().err
        assert words in err
        assert err.count("\n") == 1
    assert main(["export", str(there), "--to", "b.csv"]) == 2
    assert "is no run: give a .bsrun or .bsrace file" in capsys.readouterr().err
