"""`compare`, `sweep` and `run --workload` as a person meets them."""

import csv
import io
import json
import os
import re
import signal
from pathlib import Path

import pytest

from app.__main__ import main, parser
from app.cli.shared.options import workload_of
from app.cli.shared.progress import LanesBar
from engine import ModelSpec, load_workload, parse_lanes
from engine.compare import LaneStarted, RaceEvent, SweepEvent, compare_race, lane_run, load_race

SMALL = ["--workload", "burst", "--count", "4", "--max-tokens", "6", "--temperature", "0", "--threads", "1"]
COMPARE = ["compare", *SMALL, "--lanes", "static:2,continuous:4", "--kv-tokens", "2048"]
SWEEP = ["sweep", *SMALL, "--mode", "static,continuous", "--sizes", "1,4"]


def test_compare_prints_one_table_and_whether_the_tokens_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPARE, "--repeats", "2", "--order", "rotated", "--slo-ttft", "60", "--price", "2"]) == 0
    captured = capsys.readouterr()
    for words in (
        "4 prompts, 2 times, rotated", "(2,048 tokens)", "static · 2", "continuous · 4", "output throughput", "goodput",
        "cost of tokens", " a million",
        "wasted row-steps", "KV waste", "tok/s", "×", "±", "continuous · 4: same tokens in every request",
    ):  # fmt: skip
        assert words in captured.out
    assert captured.err == "", "no progress where stderr is no terminal"


def test_compare_keeps_its_race_in_a_file_and_tells_which_lanes_other_programs_disturbed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lane_run, "DISTURBED", 0.0)
    file = tmp_path / "mine.bsrace"
    assert main([*COMPARE, "--out", str(file)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^CPU of other programs +\d+\.\d % +\d+\.\d %$", out, re.MULTILINE)
    assert re.search(r"^static · 2: other programs used \d+ % of the CPU during this lane$", out, re.MULTILINE)
    assert "--repeats 3 shows the spread" in out
    assert compare_race(load_race(file)[0]).text() in out
    assert main([*COMPARE, "--out", str(file)]) == 2
    assert f"{file} exists" in capsys.readouterr().err
    assert main(["replay", str(file), "--pictures", str(tmp_path)]) == 2
    assert "Export saves its picture" in capsys.readouterr().err


def test_compare_as_json_holds_lanes_measures_and_agreement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPARE, "--json", "--seed", "5"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [lane["name"] for lane in data["lanes"]] == ["static · 2", "continuous · 4"]
    assert [parse_lanes(lane["lane"])[0].config.seed for lane in data["lanes"]] == [5, 5]
    assert data["lanes"][0]["agreement"] is None
    assert data["lanes"][1]["agreement"]["verdict"] == "same"
    assert (data["requests"], data["repeats"], data["cancelled"]) == (4, 1, False)
    completed = next(m for m in data["measures"] if m["key"] == "completed")
    assert [lane["value"] for lane in completed["lanes"]] == [4, 4]


@pytest.mark.parametrize(("arguments", "seed"), [([], None), (["--seed", "0"], 0), (["--seed", "7"], 7)])
def test_a_workload_keeps_its_own_seed_unless_one_is_given(arguments: list[str], seed: int | None) -> None:
    for command in ("run", "compare", "sweep"):
        options = parser().parse_args([command, "--workload", "trickle", *arguments])
        assert workload_of(options, ModelSpec()) == load_workload("trickle", seed=seed)


@pytest.mark.parametrize("form", ["--csv", "--markdown"])
def test_a_table_is_all_there_is_in_it(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPARE, form]) == 0
    out = capsys.readouterr().out
    if form == "--csv":
        rows = list(csv.DictReader(io.StringIO(out)))
        assert float(next(r for r in rows if r["measure"] == "completed")["static · 2"]) == 4
    else:
        assert "| measure | static · 2 | continuous · 4 |" in out


def test_a_lane_that_fails_ends_with_status_1_and_the_others_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *SMALL, "--lanes", "continuous:2:block=4096,continuous:4", "--kv-tokens", "2048"]) == 1
    out = capsys.readouterr().out
    assert "continuous · 2 · blocks of 4096 failed: kv_memory=" in out
    assert "tok/s" in out


def test_sweep_prints_every_point_and_what_to_take(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SWEEP, "--slo-e2e", "60", "--price", "2"]) == 0
    captured = capsys.readouterr()
    for words in (
        "static          1",
        "continuous      4",
        "average latency",
        "recommended",
        "p99 E2E latency",
        "cost of tokens",
    ):
        assert words in captured.out
    assert captured.err == ""


def test_sweep_by_rate_as_csv_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    by_rate = ["sweep", *SMALL, "--mode", "recompute,continuous:4", "--rates", "50,400"]
    assert main([*by_rate, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(r["lane"], r["rate"]) for r in rows] == [
        ("recompute", "50"), ("continuous · 4", "50"), ("recompute", "400"), ("continuous · 4", "400"),
    ]  # fmt: skip
    assert all(float(r["completed"]) == 4 for r in rows)
    assert main([*by_rate, "--json"]) == 0
    assert [p["setting"] for p in json.loads(capsys.readouterr().out)["points"]] == [50, 50, 400, 400]


def test_run_plays_a_workload_with_several_samples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *SMALL, "--mode", "chunked", "--prefix-caching", "--n", "2", "--repeat", "2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["metrics"]["requests"] == 8
    assert [(a["request"], a["sample"]) for a in data["answers"][:4]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert data["answers"][0]["text"] == data["answers"][1]["text"], "greedy samples are the same"


def test_run_plays_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.txt"
    path.write_text("Tell me a story about a fox.\nTell me a story about a cow.\n", "utf-8")
    status = main(["run", "--workload", str(path), "--max-tokens", "4", "--threads", "1", "--mode", "static", "--csv"])
    assert status == 0
    rows = {r["measure"]: r for r in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert float(rows["completed"]["static · 64"]) == 2


@pytest.mark.parametrize("command", [COMPARE, SWEEP])
def test_ctrl_c_ends_with_what_is_there(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = LanesBar.tell

    def tell(self: LanesBar, event: RaceEvent | SweepEvent) -> None:
        told(self, event)
        if isinstance(event, LaneStarted) and event.lane == 1:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(LanesBar, "tell", tell)
    before = signal.getsignal(signal.SIGINT)
    assert main([*command, "--max-tokens", "150", "--ignore-eos"]) == 130
    assert signal.getsignal(signal.SIGINT) is before
    captured = capsys.readouterr()
    assert "stopped early" in captured.err
    assert "tok/s" in captured.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "--lanes", "sideways"], ["'sideways'", "continuous"]),
        (["compare", "--lanes", "static:8:budgit=4"], ["budgit", "budget"]),
        (["compare", "--lanes", ",".join(["static"] * 9)], ["9 lanes", "1 to 8"]),
        (["compare", "--lanes", "static:model=/no/model,static"], ["/no/model", "check the path"]),
        (["compare", "--model", "no-such-model"], ["no-such-model", "hub id"]),
        (["compare", "--workload", "no-such"], ["no-such", "mixed-lengths"]),
        (["compare", "--order", "by name"], ["by name", "rotated"]),
        (["compare", "--slo-tpot", "-1"], ["slo_tpot=-1.0"]),
        (["compare", "--temperature", "-1"], ["temperature=-1.0"]),
        (["sweep", "--mode", "recompute"], ["recompute", "sweep its rates"]),
        (["sweep", "--rates", "0"], ["rate=0.0", "above 0"]),
    ],
)
def test_bad_input_ends_with_status_2_before_a_model_is_loaded(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.core.setup.assembly.load", lambda *_: pytest.fail("a model was loaded"))
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
    for word in words:
        assert word in captured.err


@pytest.mark.parametrize(
    "arguments", [["--sizes", "0"], ["--sizes", "1,x"], ["--sizes", "1", "--rates", "2"], ["--rates", "y"]]
)
def test_settings_that_are_no_numbers_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sweep", *arguments])
    assert ended.value.code == 2
    assert arguments[0] in (said := capsys.readouterr().err)
    assert "number" in said or "not allowed with" in said


@pytest.mark.parametrize("command", ["run", "compare", "sweep"])
def test_help_has_every_formula(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    out = capsys.readouterr().out
    assert "(held rows + rows whose every token was thrown away) / row-steps" in out
    assert "TTFT mean, p50, p95, p99" in out
