"""The GPU bench where there is no GPU: it walks through all its sections on Triton's interpreter."""

import json
import math
import os
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine.bench.gpu import run as gpu
from engine.bench.gpu.report import IN_PART, MARK, Bench, OutOfTime, columns, read, summary, times, write
from engine.bench.gpu.sections import decode
from engine.bench.gpu.sections.attention import Case as AttentionCase
from engine.bench.gpu.sections.attention import Pool
from engine.bench.gpu.sections.decode import weights_read
from engine.bench.gpu.sections.parallel import parallel
from engine.bench.gpu.sections.small_kernels import REPLAYED
from engine.bench.gpu.sections.yardstick import INPUT, OUTPUT, bound, idle_between, yardstick
from engine.bench.gpu.stopwatch import CpuStopwatch, Piece, idle_share, latest
from engine.bench.gpu.tests import GRACE, run_tests
from engine.bench.subject import Case, Shape
from engine.config.specs import EngineConfig
from engine.kernels.jit import interpreter_fault
from engine.memory.layer_kv import LayerKV
from engine.models.card import describe
from engine.trace.records import Kind
from engine.trace.trace import Trace
from tests.engine.trace.hand_made import CARD, header, step

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def bench(path: Path | None = None) -> Bench:
    return Bench(CpuStopwatch(), rehearsal=True, path=path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_without_a_gpu_it_says_so_in_one_line_and_exits_with_2(capsys):
    assert gpu.main([]) == 2
    assert capsys.readouterr().out.count("\n") == 1


# All that the product needs besides torch, transformers, triton, numpy and what these need themselves.
LACKING = "accelerate awq bitsandbytes datasets hypothesis psutil pynvml pyqtgraph PySide6 qasync torchao".split()


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="two cards are here")
def test_what_cards_exchange_needs_two_and_says_so(capsys):
    parallel(Bench(CpuStopwatch()))
    assert "card is here, and what cards exchange needs two: nothing to measure" in capsys.readouterr().out
    parallel(bench())
    assert capsys.readouterr().out.count("4,096") == 2, "a copy and a sum"


@pytest.mark.timeout(300)
def test_a_rehearsal_prints_rows_in_every_section_and_none_fails_where_only_torch_transformers_and_triton_are(
    tmp_path, capsys
):
    pytest.importorskip("triton")
    if fault := interpreter_fault():
        assert gpu.main(["--rehearsal"]) == 2
        assert fault in capsys.readouterr().out
        return
    tests = [f"tests.gpu.{file.stem}" for file in (ROOT / "tests" / "gpu").glob("test_*.py")]
    site = tmp_path / "site"  # of the ranks that it starts too
    site.mkdir()
    site.joinpath("sitecustomize.py").write_text(
        f"import sys; sys.modules |= dict.fromkeys({LACKING}); import tests.quick_interpreter"
    )
    program = (
        "import importlib, runpy, sys; "
        f"list(map(importlib.import_module, {tests})); "  # one that did not import would end them all
        "sys.argv[1:] = ['--rehearsal', '--out', '.']"
    )
    found = os.pathsep.join(map(str, (site, ROOT)))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": found}
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; runpy.run_module('engine.bench.gpu', run_name='__main__')"],
        env=environment | {"BATCHSCOPE_DATA": str(tmp_path / "data"), "OUT": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert "failed" not in said.lower()
    sections = said.split("]\n")[:-1]
    assert len(sections) == len(gpu.SECTIONS)
    for name, section in zip(gpu.SECTIONS, sections):
        assert f"[{name}: " in section
        tables = f"\n{section}".split("\n\n")[1:]
        assert tables
        for table in tables:
            lines = [line for line in table.splitlines() if not line.startswith(("USDT", "[", "/", "  return"))]
            assert MARK in lines[0]
            assert len(lines) >= 3, f"{name} has a table without a row:\n{table}"
    assert not list(tmp_path.glob("*.json"))


def test_the_yardsticks_requests_are_those_of_everybody_elses():
    case = yardstick()
    assert (len(case), sum(map(len, case.prompts)), case.output_tokens) == (256, INPUT, OUTPUT)
    assert case.prompts[0][:3] == (6311, 6890, 663)


def test_the_bound_counts_each_prompt_token_once_and_each_step_of_those_that_still_run():
    model = replace(CARD, weight_bytes=1000, kv_token_bytes=10, body_parameters=50)
    case = Case(((1, 2, 3), (1,)), (3, 2))
    # Two steps: contexts of 4 and 2 tokens, then of 5.
    assert bound(case, model, 1e3, 1e4) == pytest.approx(2 * 50 * 4 / 1e4 + (2 * 1000 + 10 * 11) / 1e3)


def test_what_there_is_to_reach_counts_the_launches_of_each_step():
    own, model = bench(), replace(CARD, layers=4)
    assert decode.reckoned(own, model, 1.0) == ""
    rows = [{"note": "words"}, {"": REPLAYED, "µs": 2e4}]
    own.found["sections"] = {"launches": {"tables": [{"rows": rows}]}}
    assert "reckoned by launches and bytes: 67%" in decode.reckoned(own, model, 4.0, steps=2)


def test_overlapping_intervals_count_once_towards_what_is_idle():
    assert idle_share([(0.0, 1.0), (0.5, 2.0), (0.6, 0.7), (3.0, 4.0)]) == pytest.approx(0.25)
    assert idle_share([(1.0, 2.0), (0.0, 1.0)]) == 0.0
    assert idle_share([(0.0, 1.0), (1.5, 2.0), (4.0, 5.0)], 1.0) == pytest.approx(0.4), "short pauses are not asked for"
    pieces = [Piece(at, at + 0.5, "") for at in (0.0, 3.0, 3.4)]
    assert latest(pieces, 1.0) == pieces[1:]
    assert latest([], 1.0) == []


@pytest.mark.parametrize("tied", [True, False])
def test_an_embedding_that_is_no_output_layer_is_not_read(tied):
    shape = Shape(64, 2, 4, 2, 128, 512)
    config = LlamaConfig(**shape.settings, tie_word_embeddings=tied, dtype="bfloat16")
    module = LlamaForCausalLM(config).to(torch.bfloat16).eval().requires_grad_(False)
    card = describe(module, None, "random", "random", "none", [LayerKV(2, 16)] * 2, {0: 0, 1: 0})
    multiplied = (card.body_parameters + card.head_parameters) * 2
    assert 0 < weights_read(card) - multiplied < 2048, "and norms"
    assert card.weight_bytes - weights_read(card) == (0 if tied else 64 * 512 * 2)


def test_the_time_between_decode_steps_is_what_they_do_not_take_by_the_devices_clock():
    rows = [(0, 9, 1, Kind.DECODE), (1, 9, 1, Kind.DECODE)]
    begins = (0.0, 0.010, 0.021, 0.040)
    steps = [replace(step(i, at, at + 0.02, rows), device=0.008) for i, at in enumerate(begins)]
    prompt = replace(step(9, 0.030, 0.039, [(2, 0, 7, Kind.PREFILL)]), device=0.009)
    trace = Trace([header(EngineConfig()), *steps[:3], prompt, steps[3]])
    assert idle_between(trace) == pytest.approx(1 - 0.016 / 0.021)
    assert math.isnan(idle_between(Trace([header(EngineConfig()), *(replace(s, device=0.0) for s in steps)])))


def test_a_section_that_fails_is_told_kept_and_passed_by(monkeypatch, tmp_path, capsys):
    sections = {
        "bad": (9.0, f"{__name__}:nothing_of_the_kind"),
        "good": (9.0, "engine.bench.gpu.sections.small_kernels:launches"),
    }
    monkeypatch.setattr(gpu, "SECTIONS", sections)
    path = tmp_path / "found.json"
    assert gpu.walk(bench(path), list(sections), time.monotonic() + 60) == 0
    found = read(path)
    assert [values["state"] for values in found["sections"].values()] == ["failed", "done"]
    assert found["sections"]["good"]["tables"][0]["rows"]
    assert "bad failed:" in capsys.readouterr().out
    assert any(line.startswith("FAILED") and "bad" in line for line in summary(found))


def test_a_section_that_takes_too_long_is_interrupted_and_what_it_had_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "SECTIONS", {"slow": (4.0, f"{__name__}:unused")})
    monkeypatch.setattr(gpu, "LEAST", 0.0)
    monkeypatch.setattr(gpu, "PATIENCE", 0.0)

    def slow(bench: Bench) -> None:
        bench.table("one row", (("µs", "8.2f"),)).add(1.0)
        for _ in range(2):
            with suppress(Exception):  # as what is tried may fail
                time.sleep(60)

    monkeypatch.setattr(gpu, "find", lambda place: slow)
    begun = time.monotonic()
    gpu.walk(bench(tmp_path / "found.json"), ["slow"], time.monotonic() + 1)
    assert time.monotonic() - begun < 30
    slowly = json.loads((tmp_path / "found.json").read_text())["sections"]["slow"]
    assert slowly["state"] == "failed"
    assert "OutOfTime" in slowly["error"]
    assert slowly["tables"] == [{"title": "one row", "rows": [{"µs": 1.0}]}]


def test_a_section_may_take_what_those_before_did_not_need_and_the_last_has_all_that_is_left(monkeypatch):
    interrupted, had = [], []
    monkeypatch.setattr(gpu, "SECTIONS", {name: (10.0, name) for name in ("first", "second", "last")})
    monkeypatch.setattr(gpu, "LEAVING", set())
    monkeypatch.setattr(gpu, "find", lambda place: lambda bench: had.append(bench.left))
    monkeypatch.setattr(gpu, "interrupted_after", lambda seconds: interrupted.append(seconds) or nullcontext())
    gpu.walk(bench(), list(gpu.SECTIONS), time.monotonic() + 50)
    assert had == pytest.approx([10, 10, 50], abs=3)
    assert interrupted == pytest.approx([30, 40, 55], abs=3)
    gpu.walk(bench(), list(gpu.SECTIONS), time.monotonic() + 20)
    assert interrupted[3:5] == pytest.approx([10 + gpu.PATIENCE] * 2), "no more than its own, where there is no more"


def test_the_whole_fits_its_time():
    own = {name: seconds for name, (seconds, _) in gpu.SECTIONS.items() if name != gpu.PARALLEL}
    processes = 1 + len(gpu.LEAVING)
    assert gpu.TESTS_EXPECTED + gpu.IMPORTS + gpu.STARTING * processes + sum(own.values()) <= gpu.TOTAL - 10
    assert min(own.values()) >= gpu.LEAST


def test_a_section_that_left_rows_out_is_not_called_done():
    own = bench()
    with own.section("a", 9):
        table = own.table("rows", (("µs", "8.2f"),))
        assert own.fits(1, table, "the first")
        assert not own.fits(1000, table, "eager, budget 128")
    assert own.sections["a"]["state"] == IN_PART
    (line,) = summary(own.found)
    assert line == "DONE IN PART a: no time was left for eager, budget 128"
    assert list(times(own.found | {"seconds": 9.0}))[-1].split()[-1] == "a"
    with own.section("a", 9):
        assert own.fits(1, table, "the first")
    assert own.sections["a"]["state"] == "done"


def test_the_seconds_of_each_section_are_told_and_those_of_the_whole():
    own = bench()
    with own.section("a", 9):
        pass
    own.keep("b", {"state": "left out", "error": "no time was left for it"})
    lines = list(times(own.found | {"seconds": 61.0}))
    assert lines[0].split() == ["a", "0.0", "s", "of", "9", "done"]
    assert lines[-1].split() == ["the", "whole", "61.0", "s", "not", "done:", "b"]


SECTIONS = """
import os, sys
from engine.bench.gpu import run as gpu, stopwatch
gpu.torch.cuda.is_available = lambda: True
gpu.SECTIONS = {name: (5.0, name) for name in ("good", "dies", "last")}
def dies(bench):
    bench.table("one row", (("µs", "8.2f"),)).add(1.0)
    assert gpu.read(gpu.Path(os.environ["OUT"]) / "found.json")["sections"]["dies"]["tables"], "it is there at once"
    os._exit(7)
gpu.find = lambda place: {"dies": dies}.get(place, lambda bench: bench.goal(place, 1, 2, "x"))
def measure(names, path, end):
    print("until", end)
    return gpu.walk(gpu.Bench(stopwatch.CpuStopwatch(), path=path, found=gpu.read(path)), names, end)
gpu.measure = measure
gpu.main()
os._exit(9)  # as a driver may end it after all was done
"""


def test_a_process_that_dies_loses_its_section_alone_and_results_are_copied_to_out(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("OUT", str(tmp_path / "copies"))
    path, deadline = tmp_path / "found.json", time.monotonic() + 100
    command = (sys.executable, "-c", SECTIONS)
    assert gpu.conduct(["good", "dies", "last"], False, path, deadline, command) == 1
    found = read(path)["sections"]
    assert {name: values["state"] for name, values in found.items()} == {
        "good": "done", "dies": "failed", "last": "done",
    }  # fmt: skip
    assert "exit status 7" in found["dies"]["error"]
    assert read(path)["all_done"] is False
    assert read(path)["seconds"] > 0
    assert found["dies"]["tables"][0]["rows"] == [{"µs": 1.0}], "what it had found is kept"
    assert (tmp_path / "copies" / "found.json").read_text() == path.read_text()
    said = capfd.readouterr().out
    assert said.index("reached") < said.index("FAILED   dies")
    assert said.count(f"until {deadline}") == 2, "no process has more time for its imports than another"


@pytest.mark.parametrize("out", ["", ".", "elsewhere"])
def test_results_may_be_asked_for_where_they_are_copied_to(out, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUT", out)
    write(tmp_path / "found.json", {"sections": {}})
    folders = {tmp_path, tmp_path / (out or ".")}
    assert {path.parent for path in tmp_path.rglob("*")} - {tmp_path.parent} == folders
    assert all(read(folder / "found.json") == {"sections": {}} for folder in folders)


def test_tests_have_all_the_time_there_is_where_nothing_else_is_asked_for(monkeypatch, tmp_path):
    limits = []
    monkeypatch.setattr(gpu, "compiling_beside", lambda limit: nullcontext())
    monkeypatch.setattr(gpu, "run_tests", lambda folder, limit: limits.append(limit) or {"state": "done"})
    monkeypatch.setattr(gpu, "LEAST", 1e9)
    for sections in ([], ["yardstick"]):
        nothing = sys.executable, "-c", ""
        gpu.conduct(sections, True, tmp_path / f"{len(sections)}.json", time.monotonic() + 900, nothing)
    assert limits == [pytest.approx(900, abs=5), gpu.TESTS_SECONDS]


def test_a_load_that_is_interrupted_ends(monkeypatch):
    loads = []

    def engine(model: object, config: object, cancelled: threading.Event, threads: int) -> None:
        loads.append(threading.Thread(target=cancelled.wait, args=(60,), name="engine"))
        loads[0].start()
        raise OutOfTime

    monkeypatch.setattr(decode, "Engine", engine)
    with pytest.raises(OutOfTime):
        decode.begun(SimpleNamespace(device=torch.device("cpu")), EngineConfig())
    assert not loads[0].is_alive()


def test_what_has_no_room_in_the_memory_is_told(capsys):
    own = bench()
    pool, table = Pool(own.watch, 1, 32, 64), own.table("", columns("60"))
    assert pool.holds(AttentionCase(2, 20, 4), table)
    assert not pool.holds(AttentionCase(3, 40, 4), table)
    assert capsys.readouterr().out.count("does not fit the memory") == 1


def test_after_a_profile_the_process_measures_nothing_more(monkeypatch):
    monkeypatch.setattr(gpu, "SECTIONS", dict.fromkeys(("first", "second"), (9.0, "")))
    monkeypatch.setattr(gpu, "LEAVING", {"first"})
    monkeypatch.setattr(gpu, "find", lambda place: lambda bench: None)
    own = Bench(CpuStopwatch())
    assert gpu.walk(own, ["first", "second"], time.monotonic() + 60) == gpu.BROKEN
    assert list(own.sections) == ["first"]
    assert gpu.walk(bench(), ["first", "second"], time.monotonic() + 60) == 0, "a rehearsal goes on"


def test_what_compiles_beforehand_runs_beside_the_tests_and_no_longer_than_they_may(capfd):
    code = (
        "import os, sys, time; assert os.listdir(os.environ['BATCHSCOPE_DATA']) == []; "
        "sys.exit(3) if sys.argv[1] == 'awq' else time.sleep(60 * (sys.argv[1] == 'large'))"
    )
    begun = time.monotonic()
    with gpu.compiling_beside(1.5, (sys.executable, "-c", code)):
        pass
    assert time.monotonic() - begun < 20
    said = capfd.readouterr().out
    assert "awq ended with exit status 3" in said
    assert "large was not over" in said
    assert "yardstick" not in said


def test_tests_that_take_too_long_tell_what_failed_until_then(tmp_path, capfd):
    folder = tmp_path / "tests" / "gpu"
    folder.mkdir(parents=True)
    own = "import time\ndef test_first(): assert 0, 'wrong'\ndef test_slow(): time.sleep(60)\n"
    (folder / "test_own.py").write_text(own)
    for limit in (3.0, 12.0, 36.0):  # a busy machine may take as long to begin
        found = run_tests(folder, limit)
        assert found["state"] == "failed"
        assert f"not over after {limit:.0f} s" in found["error"]
        if "FAILED" in found["error"]:
            break
    assert found["seconds"] < limit + 2 * GRACE, "ended, or killed after it had been asked to"
    assert "FAILED tests/gpu/test_own.py::test_first" in found["error"]


def test_goals_are_reached_or_missed_whichever_way_they_point():
    own = bench()
    with own.section("a", 9):
        own.goal("share", 0.8, 0.79)
        own.goal("idle", 0.05, 0.04, below=True)
    said = list(summary(own.found))
    assert [line.split()[0] for line in said] == ["MISSED", "reached"]
    assert "79.0 %" in said[0]
