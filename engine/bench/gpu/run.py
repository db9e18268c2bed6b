"""`python -m engine.bench.gpu`: the GPU tests, then how near to the card's own limits this engine comes.

Needs torch, transformers, triton and numpy. Each section is measured under a guard and within a time of its own, in a
process that is started anew where one is lost; all that was found is in a JSON file from the moment on that it is
known. `--rehearsal` walks through the same sections on a CPU, tiny, on Triton's interpreter: its figures mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from engine.bench import BEGUN
from engine.bench.gpu.report import IN_PART, MARK, Bench, OutOfTime, Section, note, read, summary, times, write
from engine.bench.gpu.stopwatch import CpuStopwatch, GpuStopwatch
from engine.bench.gpu.tests import ONE_THREAD, run_tests
from engine.core import garbage, machine
from engine.kernels.jit import interpreter_fault
from engine.memory import published

# What is measured, the most valuable first: a section's name, its seconds, where it is. An H100 and an H200 took less;
# their sum fits `TOTAL` beside what the tests take there and what it takes to begin.
SECTIONS: dict[str, tuple[float, str]] = {
    "launches": (4, "engine.bench.gpu.sections.small_kernels:launches"),
    "launched": (7, "engine.bench.gpu.sections.mixed:launched"),
    "yardstick": (28, "engine.bench.gpu.sections.yardstick:throughput"),
    "attention": (12, "engine.bench.gpu.sections.attention:decode_kernel"),
    "large": (30, "engine.bench.gpu.sections.quantized:large"),
    "prefill": (6, "engine.bench.gpu.sections.attention:prefill_kernel"),
    "nf4": (8, "engine.bench.gpu.sections.four_bits:products"),
    "decode": (38, "engine.bench.gpu.sections.decode:decode"),
    "mixture": (22, "engine.bench.gpu.sections.mixture:mixture"),
    "experts": (11, "engine.bench.gpu.sections.mixture:experts_alone"),
    "tilings": (15, "engine.bench.gpu.sections.attention:tilings"),
    "fetched": (15, "engine.bench.gpu.sections.fetched:fetched"),
    "awq": (8, "engine.bench.gpu.sections.awq:products"),
    "kernels": (11, "engine.bench.gpu.sections.yardstick:kernels"),
    "kernels-dense": (10, "engine.bench.gpu.sections.quantized:kernels_dense"),
    "kernels-awq": (11, "engine.bench.gpu.sections.quantized:kernels_awq"),
    "fused": (6, "engine.bench.gpu.sections.fused:fused"),
    "sampling": (4, "engine.bench.gpu.sections.small_kernels:sampling"),
    "small": (4, "engine.bench.gpu.sections.small_kernels:small"),
    "adapters": (6, "engine.bench.gpu.sections.adapters:adapters"),
    "states": (4, "engine.bench.gpu.sections.states:states"),
    "host": (4, "engine.bench.gpu.sections.host_copies:host_copies"),
    "mixed": (12, "engine.bench.gpu.sections.mixed:mixed"),
    "compiled": (10, "engine.bench.gpu.sections.fused:compiled"),
    "peers": (64, "engine.bench.gpu.sections.peers:peers"),
    "parallel": (120, "engine.bench.gpu.sections.parallel:parallel"),  # of two cards; with one it is not asked for
}
PARALLEL = "parallel"
# Sections after which their process ends: a profiler leaves something behind that slows launches.
LEAVING = {"kernels", "kernels-dense", "kernels-awq"}
TESTS, TESTS_SECONDS, TESTS_EXPECTED = "tests", 170.0, 150.0
# Jobs of `engine.bench.gpu.warm`.
JOBS = (
    "yardstick",
    "not dependent",
    "not fused",
    "large",
    "awq",
    "nf4",
    "mixture",
    "fetched",
    "attention",
    "small",
    *map("tilings {}".format, "123"),
)
TOTAL = 530.0  # seconds of all, imports and tests included: a machine's lender may end a command after 600
IMPORTS = 8.0  # seconds until the first process begins the tests
STARTING = 3.0  # seconds until one that has imported all it needs measures
AHEAD = 2  # processes that import before it is their turn
LEAST = 4.0  # seconds that a section is begun with
PATIENCE = 5.0  # seconds after its own that a section is interrupted
NO_TIME = "no time was left for it"
GO = b"go\n"  # says to a process that waits that it is its turn
LAST = 20.0  # seconds after that its process is ended
BROKEN = 3  # exit status of a process in which no more can be measured
ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "tests" / "benchmarks" / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.bench.gpu", description=__doc__)
    names = [TESTS, *SECTIONS]
    parser.add_argument("--only", default=",".join(names), help=f"sections, of {','.join(names)}")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results; and $OUT, where that is set")
    parser.add_argument("--rehearsal", action="store_true", help="tiny, on a CPU; writes nothing")
    parser.add_argument("--seconds", type=float, default=TOTAL, help="for everything (default: %(default).0f)")
    # A process of ours that measures: the file, and until when, by the clock that all processes share.
    parser.add_argument("--continue-in", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(names)}")
    sections = [name for name in SECTIONS if name in chosen]
    if not options.rehearsal and sections != [PARALLEL] and torch.cuda.device_count() == 1:
        sections = [name for name in sections if name != PARALLEL]  # its seconds are for the others
    deadline = BEGUN + options.seconds if options.until is None else options.until
    if options.rehearsal:
        return rehearse(sections)
    if not torch.cuda.is_available():
        print(
            "No CUDA GPU is usable here, so there is nothing to measure: `--rehearsal` walks through it all, and on a "
            "CPU there is `batchscope bench`."
            + (" What cards exchange needs two of them." if "parallel" in chosen else "")
        )
        return 2
    if options.continue_in is not None:
        garbage.Process.engines = True
        return in_turn(sections, options.continue_in, deadline)
    name = f"{torch.cuda.get_device_name().lower().replace(' ', '-')}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    return conduct(sections, TESTS in chosen, options.out.absolute() / name, deadline)


def rehearse(sections: Sequence[str]) -> int:
    """All sections on a CPU, in a process in which Triton interprets: it decides that when it is imported."""
    if fault := interpreter_fault():
        print(f"Nothing can be rehearsed here: {fault}")
        return 2
    if os.environ.get("TRITON_INTERPRET") != "1":
        command = [sys.executable, "-m", "engine.bench.gpu.run", "--rehearsal", "--only", ",".join(sections)]
        environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    torch.set_num_threads(1)
    bench = Bench(CpuStopwatch(), rehearsal=True)
    print(f"On a {bench.watch.name}, {MARK}")
    for name in JOBS:
        importlib.import_module(WARM).JOBS[name](bench)
    walk(bench, sections, time.monotonic() + 3600)
    print("\n" + "\n".join(summary(bench.found, rehearsal=True)))
    return int(any(values["state"] != "done" for values in bench.sections.values()))


MEASURE, WARM = (sys.executable, "-u", "-m", "engine.bench.gpu.run"), "engine.bench.gpu.warm"


def conduct(sections: Sequence[str], tests: bool, path: Path, deadline: float, command: Sequence[str] = MEASURE) -> int:
    """The tests, then processes of `command` that measure: another one where one was lost or has left. They import what
    they need beforehand, beside the tests or the one before. 0 when all was done."""
    its_own = ["--only", ",".join(sections), "--continue-in", str(path), "--until", str(deadline)]

    def waiting() -> subprocess.Popen[bytes]:
        return subprocess.Popen([*command, *its_own], cwd=ROOT, stdin=subprocess.PIPE)

    ready = [waiting() for _ in sections[:AHEAD]]
    try:
        return _conduct(sections, tests, path, deadline, ready, waiting)
    finally:
        for child in ready:
            with child:
                child.kill()


def _conduct(
    sections: Sequence[str],
    tests: bool,
    path: Path,
    deadline: float,
    ready: list[subprocess.Popen[bytes]],
    waiting: Callable[[], subprocess.Popen[bytes]],
) -> int:
    """`ready` are processes that wait for their turn, and `waiting` begins another."""
    if tests:
        seconds = deadline - time.monotonic()
        if sections:
            seconds = min(TESTS_SECONDS, seconds)
        with compiling_beside(seconds):
            found = run_tests(ROOT / "tests" / "gpu", seconds)
        note(path, TESTS, found)
    while left := [name for name in sections if name not in read(path)["sections"]]:
        if deadline - time.monotonic() < LEAST:
            for name in left:
                note(path, name, {"state": "left out", "error": NO_TIME})
            break
        status = attend(ready[0], path, deadline + LAST)
        ready[:] = *ready[1:], waiting()  # not before, since its imports would disturb what is measured first
        lost = {name: values for name, values in read(path)["sections"].items() if values["state"] == "running"}
        for name, values in lost.items():
            print(f"\nThe process that measured {name} is gone (exit status {status})", flush=True)
            note(path, name, {**values, "state": "failed", "error": f"its process ended with exit status {status}"})
        if left[0] not in read(path)["sections"]:  # it began nothing
            note(path, left[0], {"state": "failed", "error": f"its process ended with exit status {status}"})
    found = read(path)
    all_done = all(values["state"] == "done" for values in found["sections"].values())
    found |= {"seconds": round(time.monotonic() - BEGUN, 1), "all_done": all_done}
    write(path, found)
    tell(found)
    print(f"Written to {path}")
    return int(any(values["state"] not in ("done", IN_PART, "left out") for values in found["sections"].values()))


@contextmanager
def compiling_beside(limit: float, command: Sequence[str] = (sys.executable, "-m", WARM)) -> Iterator[None]:
    """What the sections launch is compiled beside what is done within, each of `JOBS` in a process of its own; they are
    waited for, but no longer than `limit` seconds from the beginning. Without them sections compile it themselves."""
    begun, data = time.monotonic(), tempfile.TemporaryDirectory(prefix="batchscope-")
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    quiet["env"] = {
        **os.environ,
        **ONE_THREAD,
        "BATCHSCOPE_DATA": data.name,
    }  # the roof of a busy GPU is not to be kept
    children = {name: subprocess.Popen([*command, name], cwd=ROOT, **quiet) for name in JOBS}
    try:
        yield
        for name, child in children.items():
            try:
                if status := child.wait(max(0.1, begun + limit - time.monotonic())):
                    print(f"compiling beforehand: {name} ended with exit status {status}", flush=True)
            except subprocess.TimeoutExpired:
                print(f"compiling beforehand: {name} was not over after {limit:.0f} s", flush=True)
        print(f"compiled beforehand, beside the tests: {time.monotonic() - begun:.0f} s in all", flush=True)
    finally:
        for child in children.values():
            child.kill()
            child.wait()
        data.cleanup()


def attend(child: subprocess.Popen[bytes], path: Path, end: float) -> int:
    """The exit status of a process whose turn it is to measure; it is ended when its section is long over time."""
    assert child.stdin is not None
    with suppress(OSError), child.stdin as told:  # it may have ended already
        told.write(GO)
    while True:
        try:
            return child.wait(1.0)
        except subprocess.TimeoutExpired:
            running = [v for v in read(path)["sections"].values() if v["state"] == "running"]
            late = any(time.time() > v["since"] + v["most"] + LAST for v in running)
            if late or time.monotonic() > end:
                child.kill()
                return child.wait()
        except BaseException:
            child.kill()
            raise


def in_turn(sections: Sequence[str], path: Path, deadline: float) -> int:
    """Imports what the sections need, waits until it is told to go on, and measures those that were not begun by then;
    it ends where whoever would tell it has ended."""
    for name in sections:
        with suppress(Exception):  # it is told when it is its turn
            find(SECTIONS[name][1])
    if sys.stdin.buffer.readline() != GO:
        return 0
    begun = read(path)["sections"]
    return measure([name for name in sections if name not in begun], path, deadline)


def measure(sections: Sequence[str], path: Path, deadline: float) -> int:
    """The sections on the GPU that is here, in this process."""
    watch = GpuStopwatch()
    memory = torch.cuda.get_device_properties(watch.device).total_memory
    bench = Bench(watch, path=path, found=read(path))
    bench.found |= {"gpu": watch.name, "gpu_memory": memory, "versions": machine.versions()}
    bench.found |= {"copy_bytes_per_second": watch.bandwidth, "matrix_operations_per_second": watch.operations}
    sheet, of_published = published(watch.name), ""
    if sheet is not None:
        copied, multiplied = watch.bandwidth / sheet.bandwidth, watch.operations / sheet.rate("bfloat16")
        bench.found |= {"copy_of_published": copied, "operations_of_published": multiplied}
        of_published = f" ({copied:.0%} and {multiplied:.0%} of what its maker publishes)"
    print(
        f"{watch.name}, {memory / 2**30:.0f} GiB, cache {watch.cache / 2**20:.0f} MiB; copies "
        f"{watch.bandwidth / 1e12:.2f} TB/s; bfloat16 {watch.operations / 1e12:.0f} TFLOP/s{of_published}; "
        f"{machine.versions()}",
        flush=True,
    )
    return walk(bench, sections, deadline)


def walk(bench: Bench, sections: Sequence[str], deadline: float) -> int:
    """One section after another, whatever becomes of each. What those before did not need is for those that take more
    than their own seconds, so that fewer are interrupted, and all that is left for the last."""
    for number, name in enumerate(sections, 1):
        gc.freeze()  # what libraries have by now stays, and sections collect often
        limit, place = SECTIONS[name]
        left = deadline - time.monotonic()
        later = sum(SECTIONS[other][0] + STARTING * (other in LEAVING) for other in sections[number:])
        seconds = min(limit, left) if later else left
        if seconds < LEAST:
            bench.keep(name, {"state": "left out", "error": NO_TIME})
            continue
        most = max(seconds + PATIENCE, left - later)
        try:
            with bench.section(name, seconds, most), interrupted_after(most):
                find(place)(bench)
        except (Exception, OutOfTime):
            print(f"\n{name} failed:\n{''.join(traceback.format_exc().splitlines(keepends=True)[-12:])}", flush=True)
        gc.collect()  # what failed may have left a model in a circle of objects
        try:
            bench.watch.wait()
            bench.watch.free()
        except Exception:  # an illegal access, say: nothing more is to be had of it in this process
            return BROKEN
        print(f"[{name}: {bench.sections[name]['seconds']:.0f} s]", flush=True)
        if name in LEAVING and not bench.rehearsal:
            return BROKEN
    return 0


def find(place: str) -> Section:
    """Imported when it is its turn: what cannot be imported fails by itself."""
    module, _, name = place.partition(":")
    found: Section = getattr(importlib.import_module(module), name)
    return found


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in what takes longer, at the next moment that Python is asked."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime(f"not over after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def tell(found: dict[str, Any]) -> None:
    """What was reached of each goal, last, where the end of the output is read."""
    print("\n" + json.dumps({key: value for key, value in found.items() if key != "sections"}))
    print("\n" + "\n".join(times(found)))
    print("\n" + "\n".join(summary(found)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
