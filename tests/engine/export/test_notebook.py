"""A trace in a notebook."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine import InvalidInput, Trace, measure, save_trace
from tests.engine.export.conftest import Runs
from tests.engine.export.pages import Page


def test_a_notebook_shows_the_run_its_measures_and_its_timeline(runs: Runs) -> None:
    page = Page(runs.busy._repr_html_())
    assert "continuous · 4 · budget 128 · preempts by swap · ngram drafts" in page.texts
    assert f"{measure(runs.busy).completed:,} " in page.texts
    assert page.tags["svg"] == 1
    assert page.tags["script"] == 0
    both = runs.busy._repr_html_() + runs.race.lane_runs[0].trace._repr_html_()  # type: ignore[union-attr]
    ids = [given["id"] for _, given in Page(both).attributes if given.get("id")]
    assert len(ids) == len(set(ids)), "two runs in one notebook keep their patterns apart"
    assert "without a record" in Trace()._repr_html_()
    Page(Trace(runs.busy.records[:1])._repr_html_())


def test_a_notebook_needs_no_other_import_than_the_one_that_opens_the_run(runs: Runs, tmp_path: Path) -> None:
    save_trace(runs.busy, path := tmp_path / "RUN.bsrun")
    opened = f"from engine import load_trace; trace = load_trace(Path({str(path)!r}))"
    script = f"from pathlib import Path; {opened}; print(trace._repr_html_().count('<svg'))"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (told.stdout, told.stderr) == ("1\n", "")


def test_a_trace_is_tables_of_pandas(runs: Runs) -> None:
    trace = runs.busy
    steps = trace.to_pandas("steps")
    assert steps.emitted.sum() == measure(trace).output_tokens
    assert list(trace.to_pandas().request) == [0, 0, 1, 2, 3, 4, 5]
    with pytest.raises(InvalidInput, match=r"to_pandas\('tokens'\): there are requests, steps, metrics"):
        trace.to_pandas("tokens")


def test_without_pandas_it_says_what_to_install(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = importlib.import_module

    def without(name: str, *given: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return whole(name, *given)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(InvalidInput, match=r"pip install 'batchscope\[export\]'"):
        runs.busy.to_pandas()
