"""Breaks inputs by the thousand, kills processes by the dozen and asks one engine for anything, and counts what came of
it: `make harden`, or `python -m tests.hardening.harden`.

With a broken input, a defect is a traceback, a wait of over five seconds (more where models are loaded and panels
drawn), growth of over 500 MB, a write or a process elsewhere, or the death of the reader. Kills (of engines, writers
and servers, and of a fleet's replicas) and the soaks (an engine's, and a server's by requests) say themselves what they
ask for. Each defect is printed with the number that makes it again.
"""

import argparse
import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.hardening.found import Found
from tests.hardening.kills import kill
from tests.hardening.replicas import kill_replicas
from tests.hardening.requests import ask
from tests.hardening.soak import soak
from tests.hardening.targets import TARGETS

ROOT = Path(__file__).parents[2]
START = 300.0  # seconds that a worker may take to begin, on a machine that does other things too
SLICE = 0.5  # seconds of waiting that are counted at once
SHARES = {
    "runs": 0.45,
    "workloads": 0.3,
    "bodies": 0.2,
    "races": 0.08,
    "models": 0.12,
    "loads": 0.02,
    "views": 0.03,
    "kills": 0.004,
    "replicas": 0.002,
    "soak": 0.6,
    "requests": 1.0,
}


def harden(kind: str, count: int, seed: int, wholes: Path, begin: int = 0, slack: float = 1.0) -> Found:
    """Breaks so many inputs of a kind, in a worker that is replaced when it hangs or dies. An input may take `slack`
    times as long as usual, where the machine does other things too."""
    found, end = Found(), begin + count
    while begin < end:
        order = [sys.executable, "-m", "tests.hardening.worker", kind, str(wholes), str(seed), str(begin), str(end)]
        with (
            tempfile.TemporaryFile("w+") as printed,  # a pipe that nobody reads would hold the worker up
            subprocess.Popen(order, cwd=ROOT, stdout=subprocess.PIPE, stderr=printed, text=True) as worker,
        ):
            at, words = begin - 1, "hang"
            for line in _lines(worker, slack * TARGETS[kind].seconds):
                at = line.get("began", at)
                if "ended" in line:
                    found.add(kind, line["ended"], line["outcome"], line["words"])
                    begin = line["ended"] + 1
            if begin < end:
                words = "hang" if worker.poll() is None else f"death with {worker.returncode}"
                worker.kill()
                if at < begin:
                    printed.seek(0)
                    raise RuntimeError(f"the worker ends between two inputs: {printed.read()}")
                found.add(kind, begin, words, "")
                begin += 1
    return found


def _lines(worker: subprocess.Popen[str], seconds: float) -> Iterator[dict[str, str | int]]:
    """The worker's lines, until it ends or is silent for too long. Time in which this process was halted itself does
    not count: then the worker was as well."""
    assert worker.stdout is not None
    said: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in worker.stdout or ():
            said.put(line)
        worker.wait()
        said.put("")

    threading.Thread(target=read, daemon=True).start()
    patience = START
    while True:
        try:
            line = said.get(timeout=min(SLICE, patience))
        except queue.Empty:
            patience -= SLICE
            if patience <= 0:
                return
            continue
        if not line:
            return
        told = json.loads(line)
        patience = seconds if "began" in told else START
        yield told


def tried(kind: str, count: int, seed: int, folder: Path, pool: ThreadPoolExecutor, number: int | None) -> Found:
    """So many trials of a kind, or one alone."""
    if kind == "kills":
        return kill(count if number is None else 1, seed, folder, number or 0)
    if kind == "replicas":
        return kill_replicas(count if number is None else 1, seed, number or 0)
    if kind == "soak":
        return soak(count if number is None else 1, seed, number or 0)
    if kind == "requests":
        return ask(count if number is None else 1, seed, number or 0)
    TARGETS[kind].make(folder)
    half = count // 2
    parts = ((half, 0), (count - half, half)) if number is None else ((1, number),)
    found = Found()
    for part in [pool.submit(harden, kind, size, seed, folder, at) for size, at in parts]:
        found.counts += part.result().counts
        found.defects += part.result().defects
    return found


def row(name: str, counts: Counter[str]) -> str:
    return f"{name:<10} {counts.total():6,}  " + "  ".join(f"{what} {n:,}" for what, n in sorted(counts.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="inputs in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(SHARES), help="this kind alone")
    parser.add_argument("--number", type=int, help="this input of the kind alone")
    options = parser.parse_args()
    kinds = [options.kind] if options.kind else list(SHARES)
    total: Counter[str] = Counter()
    defects: list[str] = []
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(2) as pool:
        for kind in kinds:
            wholes = Path(place) / kind
            wholes.mkdir()
            count = options.count if options.kind else round(SHARES[kind] * options.count)
            found = tried(kind, count, options.seed, wholes, pool, options.number)
            print(row(kind, found.counts), flush=True)
            total += found.counts
            defects += found.defects
    print(row("all", total))
    for defect in defects[:40]:
        print(f"\n{defect}")
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
