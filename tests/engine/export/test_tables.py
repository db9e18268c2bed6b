"""Tables of a run: their rows are those of the run, in every kind of file."""

import builtins
import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from engine import Engine, InvalidInput, Trace, load_workload, measure
from engine.compare import lane_text
from engine.export import KINDS, Source, export, kind_of, lane_of
from engine.export.table_file import WRITERS
from engine.export.tables import TABLES, table
from engine.trace import Submitted, request_metrics
from tests.engine.conftest import begin_when_idle
from tests.engine.export.conftest import Runs


def test_requests_have_a_row_a_sample_with_the_measures_of_the_run(runs: Runs) -> None:
    trace = runs.busy
    rows = [dict(zip(*given)) for given in ((table(source(trace), "requests").columns, r) for r in rows_of(trace))]
    assert [(r["request"], r["sample"]) for r in rows] == [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]
    for row in rows[2:]:
        told = request_metrics(trace.requests[row["request"]])
        assert (row["ttft"], row["tpot"], row["e2e"]) == pytest.approx((told.ttft, told.tpot, told.e2e))
        assert (row["prompt_tokens"], row["output_tokens"]) == (told.prompt_tokens, told.output_tokens)
        assert row["text"] == trace.requests[row["request"]].text
    assert rows[0]["submitted"] == 0
    assert [r["finish_reason"] for r in rows].count(None) == 1, "the last to end was cut off"
    assert sum(r["drafted_kept"] for r in rows) == measure(trace).accepted_tokens


def source(trace: Trace) -> Source:
    return Source.of_trace(trace)


def rows_of(trace: Trace) -> list[tuple[Any, ...]]:
    return list(table(source(trace), "requests").rows())


def test_steps_add_up_to_the_run(runs: Runs) -> None:
    columns, metrics = table(source(runs.busy), "steps").columns, measure(runs.busy)
    assert len(columns["step"]) == len(runs.busy.steps)
    assert sum(columns["emitted"]) == metrics.output_tokens
    assert sum(columns["rows"]) == metrics.row_steps
    assert sum(columns["tokens"]) + sum(columns["padding"]) == metrics.computed_tokens
    assert sum(columns["drafted"]) == metrics.drafted_tokens
    assert sum(columns["preempted"]) == metrics.preemptions
    parts = zip(columns["prefill_rows"], columns["decode_rows"], columns["held_rows"], columns["rows"])
    assert all(prefill + decode + held == rows for prefill, decode, held, rows in parts)


def test_a_race_has_its_lanes_in_the_first_column(runs: Runs) -> None:
    told = table(Source.of_race(runs.race), "metrics").columns
    completed = [(lane, v) for lane, key, v in zip(told["lane"], told["key"], told["value"]) if key == "completed"]
    assert completed == [("static · 2", 6.0), ("continuous · 4", 6.0)]


@pytest.mark.parametrize("what", ["requests", "steps", "metrics"])
def test_all_kinds_of_files_hold_the_same(runs: Runs, what: str, tmp_path: Path) -> None:
    of = Source.of_race(runs.race)
    told = [dict(zip(table(of, what).columns, row)) for row in table(of, what).rows()]
    for ending in (".csv", ".json", ".parquet"):
        export(of, tmp_path / f"a{ending}", what)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == told
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist() == told
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert read == [{name: "" if v is None else str(v) for name, v in row.items()} for row in told]


def test_without_pyarrow_parquet_says_what_to_install(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = builtins.__import__

    def without(name: str, *given: Any, **also: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return whole(name, *given, **also)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidInput, match=r"Parquet is written by pyarrow.*pip install 'batchscope\[export\]'"):
        export(source(runs.busy), tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == [], "nothing half is left"


def test_a_name_tells_what_is_written() -> None:
    for name, what in (
        ("a.json", "perfetto"),
        ("a.json.gz", "perfetto"),
        ("a.csv", "requests"),
        ("a.jsonl", "prompts"),
    ):
        assert kind_of(Path(name)) == what
    assert kind_of(Path("a.json"), "steps") == "steps"
    assert all(KINDS[what].endings == tuple(WRITERS) for what in TABLES)
    with pytest.raises(InvalidInput, match=r"'a\.doc' does not tell what to write; its name must end with"):
        kind_of(Path("a.doc"))
    with pytest.raises(InvalidInput, match=r"perfetto cannot be written as 'a\.csv'"):
        kind_of(Path("a.csv"), "perfetto")


def test_where_nothing_can_be_written_that_is_said(runs: Runs, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot write .*nowhere"):
        export(source(runs.busy), tmp_path / "nowhere" / "a.csv")
    with pytest.raises(InvalidInput, match="no run yet"):
        Source.of_trace(Trace())


def test_half_a_character_stops_no_export(runs: Runs, tmp_path: Path) -> None:
    half = "a fox \ud83e"
    records = [
        replace(r, text=half, messages=(), label=half) if isinstance(r, Submitted) else r for r in runs.busy.records
    ]
    of = source(Trace(records))
    for name in ("a.html", "a.json", "a.json.gz", "a.csv", "a.parquet", "a.jsonl"):
        export(of, tmp_path / name)
    assert "a fox ?" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist()[0]["label"] == "a fox ?"


def test_the_prompts_of_a_run_sent_again_give_its_tokens(runs: Runs, demo_engine: Engine, tmp_path: Path) -> None:
    trace = runs.busy
    export(source(trace), tmp_path / "prompts.jsonl")
    workload = load_workload(tmp_path / "prompts.jsonl")
    begin_when_idle(demo_engine, trace.header.config)
    again = demo_engine.run(workload, trace.header.config).result()
    for old, new in zip(trace.requests.values(), again.requests.values(), strict=True):
        assert old.prompt_ids.tolist() == new.prompt_ids.tolist()
        assert old.params == new.params
        assert [s.tokens for s in old.samples] == [s.tokens for s in new.samples]
    assert "speculation=ngram" in lane_text(lane_of(trace.header))
    export(Source.of_race(runs.race), tmp_path / "race.jsonl")
    assert load_workload(tmp_path / "race.jsonl").arrivals == runs.race.workload.arrivals
