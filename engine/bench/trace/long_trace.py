"""`python -m engine.bench.trace.long_trace`: what an hour's trace costs in memory and time, on a made-up run."""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles

import psutil

from engine.bench.trace.synthetic import PERIOD, made_up_hour
from engine.core.stream import StreamRouter
from engine.trace.records import Step
from engine.trace.requests import RequestIndex
from engine.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds."""

    median: float
    p95: float
    most: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Times:
        cuts = quantiles(seconds, n=20, method="inclusive")
        return cls(1000 * median(seconds), 1000 * cuts[-1], 1000 * max(seconds))

    def __str__(self) -> str:
        return f"median {self.median:.2f} ms, p95 {self.p95:.2f} ms, most {self.most:.2f} ms"


@dataclass(frozen=True, slots=True)
class Hour:
    """Memory in bytes: `grown` is what the process holds more than before; `packed` and `columns` (the index's tokens,
    times and text) are counted. Microseconds of processor time a step: `append`, to append it and its start to the log,
    packing of old records included; `feed`, to tell the index. `most`: milliseconds of the longest append; `slow`: how
    many took more than 2 ms. `collect`: milliseconds that Python takes to look through all objects for cycles.
    `read`: the step at a random time; `past`: the requests of that step as they stood then."""

    steps: int
    rows: int
    requests: int
    records: int
    grown: int
    packed: int
    columns: int
    append: float
    most: float
    slow: int
    feed: float
    collect: float
    read: Times
    past: Times

    def text(self) -> str:
        return (
            f"a made-up run (generated, not measured): {self.steps:,} steps of {self.rows} rows, "
            f"{self.requests:,} requests, {self.records:,} records, {self.steps * PERIOD / 60:.1f} minutes\n"
            f"memory      {self.grown / 1e9:.3f} GB more than before: packed records {self.packed / 1e9:.3f} "
            f"({self.packed / self.steps:.0f} bytes a step), the index's columns {self.columns / 1e9:.3f}, "
            f"all else {(self.grown - self.packed - self.columns) / 1e9:.3f}\n"
            f"log         {self.append:.0f} us a step, longest append {self.most:.2f} ms, "
            f"{self.slow:,} of more than 2 ms\n"
            f"index       {self.feed:.0f} us a step; a collection of garbage {self.collect:.0f} ms\n"
            f"any step    {self.read}\n"
            f"its {self.rows} requests as they stood  {self.past}"
        )


def measure_hour(steps: int, rows: int = 64, moments: int = 500) -> Hour:
    """Appends such a run to a trace with the listener and the index that the window has, all streams read and gone;
    then reads random times."""
    gc.collect()
    before = psutil.Process().memory_info().rss
    trace, index, clock = Trace(), RequestIndex(), time.thread_time  # so that what else runs here does not count
    StreamRouter(trace)
    appending = feeding = most = 0.0
    slow = 0
    gc.disable()  # it takes its time whenever it likes; how long is measured below
    for place, record in enumerate(made_up_hour(steps, rows)):
        begun = clock()
        trace.append(record)
        appended = clock()
        spent = appended - begun
        index.feed(record)
        feeding += clock() - appended
        appending += spent
        most = max(most, spent)
        slow += spent > 0.002
        if place % 50_000 == 0:
            gc.collect()
    gc.enable()
    begun = clock()
    gc.collect()
    collect = clock() - begun
    grown = psutil.Process().memory_info().rss - before
    samples = [sample for view in index.requests.values() for sample in view.samples]
    arrays = [c for s in samples for c in (s.tokens, s.logprobs, s.token_times, s.text_ends)]
    columns = sum(len(c) * c.itemsize for c in arrays) + sum(len(s.text) for s in samples)
    log, rng = trace.records, random.Random(1)
    reads, pasts, clock = [], [], time.perf_counter
    for _ in range(moments):
        moment = rng.uniform(log.step_ends[0], log.step_ends[-1])
        begun = clock()
        step = log[log.step_places[bisect_right(log.step_ends, moment) - 1]]
        read = clock()
        assert isinstance(step, Step)
        past = index.at(moment)
        views = [past[request] for request in step.request.tolist()]
        pasts.append(clock() - read)
        reads.append(read - begun)
        assert all(view.samples[0].computed for view in views)
    held = len(index.requests), len(log), grown, log.packed_bytes, columns
    spent_on = 1e6 * appending / steps, 1000 * most, slow, 1e6 * feeding / steps, 1000 * collect
    return Hour(steps, rows, *held, *spent_on, Times.of(reads), Times.of(pasts))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.bench.trace.long_trace", description=__doc__)
    parser.add_argument("--steps", type=int, default=360_000, help="steps, 100 a second (default: an hour's)")
    parser.add_argument("--rows", type=int, default=64, help="rows a step")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    hour = measure_hour(options.steps, options.rows)
    print(json.dumps(asdict(hour), indent=1) if options.json else hour.text())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
