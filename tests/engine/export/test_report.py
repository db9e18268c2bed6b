"""The report of a run and of a race: what it says, and that it needs nothing but itself."""

import json
import re
import shutil
import subprocess
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from engine import Trace, load_workload, measure
from engine.compare import LaneRun, RaceResult, compare_race, parse_lanes
from engine.export import Source, export
from engine.export.report import report
from engine.export.report.series import RunSeries, Shade
from engine.export.reproduction import commands
from engine.jobs import LoadCancelled
from engine.trace import MEASURES, Kind, Submitted
from tests.engine.export.conftest import Runs
from tests.engine.export.pages import Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def test_a_run_is_told_with_its_measures_machine_and_requests(runs: Runs) -> None:
    trace = runs.busy
    page = Page(report(Source.of_trace(trace, "a <run> & more", "a.bsrun")))
    metrics = measure(trace)
    assert "a <run> & more" in page.texts
    for key in ("output_throughput", "ttft.p95", "acceptance_rate", "kv.waste"):
        assert MEASURES[key].text(MEASURES[key].read(metrics)) in page.texts
        assert MEASURES[key].formula in page.texts
    assert trace.header.machine.cpu in page.text
    assert "speculation='ngram'" in page.text
    cells = [given for tag, given in page.attributes if "bs-cell" in (given.get("class") or "")]
    assert {int(c["data-request"] or -1) for c in cells} == set(trace.requests)
    assert {c["data-does"] for c in cells} >= {"prefill", "decode", "verify drafts"}
    told = json.loads(next(t for t in page.texts if t.startswith("[{")))
    assert set(told[0]) == {str(id) for id in trace.requests}
    assert "a cat and a kite" in told[0]["5"]
    assert page.tags["svg"] == 5


def test_a_race_is_told_lane_beside_lane(runs: Runs) -> None:
    page = Page(report(Source.of_race(runs.race, file="race.bsrace")))
    comparison = compare_race(runs.race)
    for row in comparison.rows:
        assert row.measure.name in page.texts
        for cell in row.cells:
            assert row.measure.text(cell.value) in page.text
    ends = {
        given["data-end"] for tag, given in page.attributes if tag == "svg" and "bs-timeline" in (given["class"] or "")
    }
    assert len(ends) == 1, "both timelines lie on one clock"
    assert "held: done, computed on" in page.texts
    assert "Foxes & owls" in page.texts


def test_it_asks_nobody_for_anything(runs: Runs) -> None:
    for source in (Source.of_trace(runs.busy), Source.of_race(runs.race)):
        text = report(source)
        page = Page(text)
        policy = next(given for _, given in page.attributes if given.get("http-equiv") == "Content-Security-Policy")
        assert (policy["content"] or "").startswith("default-src 'none';")
        for _, given in page.attributes:
            for name in ("src", "href", "action"):
                assert (given.get(name) or "data:").startswith("data:")
        assert not re.search(
            r"@import|url\((?!#)|fetch\(|XMLHttpRequest|import\(", re.sub(r'href="data:[^"]*"', "", text)
        )


def test_what_a_prompt_holds_stays_text(runs: Runs) -> None:
    evil = '</script><script>alert("x")</script><img src=x>'
    records = [
        replace(r, text=evil, messages=(), label=evil) if isinstance(r, Submitted) else r for r in runs.busy.records
    ]
    page = Page(report(Source.of_trace(Trace(records), evil)))
    assert page.tags["script"] == 2
    assert page.tags["img"] == 0


def test_its_commands_make_the_same_run_again(runs: Runs, tmp_path: Path) -> None:
    race = runs.race
    first, second = commands(Source.of_race(race, file="my race.bsrace"))
    assert first == "batchscope export 'my race.bsrace' --to 'my race prompts.jsonl'"
    said = dict(part.split(" ", 1) for part in second.split(" --")[1:])
    assert said["workload"] == "'my race prompts.jsonl'"
    assert parse_lanes(said["lanes"]) == race.lanes
    assert said["kv-memory"] == str(race.kv_memory)
    header = runs.busy.header
    first, second = commands(Source.of_trace(runs.busy, file="a.bsrun"))
    (lane,) = parse_lanes(re.search(r"--lanes (\S+)", second)[1])  # type: ignore[index]
    assert replace(lane.config, kv_memory=header.config.kv_memory) == header.config
    assert f"--kv-memory {header.blocks * header.config.block_size * header.kv_token_bytes}" in second
    export(Source.of_trace(runs.busy), tmp_path / "a-prompts.jsonl")
    assert len(load_workload(tmp_path / "a-prompts.jsonl")) == len(runs.busy.requests)


def test_the_timeline_shows_what_every_slot_did(runs: Runs) -> None:
    trace = runs.race.lane_runs[0].trace
    assert trace is not None
    series = RunSeries.of(trace)
    assert series.slots == 2
    for slot in range(series.slots):
        cells = [cell for cell in series.cells if cell.slot == slot]
        assert all(a.end <= b.begin for a, b in pairwise(cells))
    held = sum(int((step.kind == Kind.HELD).sum()) for step in trace.steps)
    assert held
    assert any(cell.shade is Shade.HELD for cell in series.cells)
    busy = RunSeries.of(runs.busy)
    assert sum(cell.left for cell in busy.cells) == measure(runs.busy).preemptions
    assert series.emitted.sum() == measure(trace).output_tokens
    _, so_far = series.emitted_so_far()
    assert so_far[-1] == measure(trace).output_tokens
    assert series.most(series.kv)[1].sum(axis=1).max() == series.kv.sum(axis=1).max()


def test_a_run_cut_short_before_its_first_step_has_a_report(runs: Runs) -> None:
    for count in (1, 2, 6):
        page = Page(report(Source.of_trace(Trace(runs.busy.records[:count]), "short")))
        assert "short" in page.texts
    failed = RaceResult(runs.race.workload, runs.race.lanes, (runs.race.lane_runs[1], LaneRun(0, 0, None, "no room")))
    page = Page(report(Source.of_race(failed)))
    assert "static · 2 failed: no room" in page.texts


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_in_a_browser_the_pointer_is_answered_without_an_error_or_a_request(runs: Runs, tmp_path: Path) -> None:
    probe = """<script>addEventListener("load", () => {
      const cell = document.querySelector(".bs-cell[data-request='3']"), box = cell.getBoundingClientRect();
      const where = { bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + 1 };
      cell.dispatchEvent(new PointerEvent("pointermove", where));
      document.body.dataset.asked = performance.getEntriesByType("resource").length;
    });</script>"""
    file = tmp_path / "report.html"
    file.write_text(report(Source.of_trace(runs.busy)).replace("</body>", f"{probe}</body>"), encoding="utf-8")
    flags = "--headless=new --no-sandbox --disable-gpu --enable-logging=stderr --dump-dom --no-first-run"
    done = subprocess.run(
        [str(CHROMIUM), *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    assert "CONSOLE" not in done.stderr, "an error, or something that the page's policy refused"
    assert 'data-asked="0"' in done.stdout
    tip = re.search(r'<div id="bs-tip"[^>]*>(.*?)</div>', done.stdout, re.DOTALL)
    assert tip is not None
    assert tip[1].startswith("#3 · ")
    assert "a hen and a kite" in tip[1]
    assert done.stdout.count("bs-cursor on") == 4, "the charts over time share one cursor"


def test_it_can_be_cancelled_midway(runs: Runs, tmp_path: Path) -> None:
    cancelled, path = threading.Event(), tmp_path / "a.html"
    records = sum(len(run.trace.records) for run in Source.of_race(runs.race).runs)
    seen = []

    def look() -> None:
        seen.append(len(seen))
        if len(seen) == 5:
            cancelled.set()
        if cancelled.is_set():
            raise LoadCancelled("the export was cancelled")

    with pytest.raises(LoadCancelled):
        report(Source.of_race(runs.race).watched(look))
    assert len(seen) == 5 < records
    with pytest.raises(LoadCancelled):
        export(Source.of_trace(runs.busy), path, cancelled=cancelled)
    assert not list(tmp_path.iterdir())
    assert report(Source.of_trace(runs.busy).watched(lambda: None)) == report(Source.of_trace(runs.busy))
