"""A log that packs its old records reads as a list does."""

import random
import threading
import time
from bisect import bisect_right
from typing import Any

import numpy as np
import pytest

from engine import Engine, EngineConfig, SamplingParams, Submission, Trace
from engine.bench.trace.synthetic import made_up_hour
from engine.trace.log import CHUNK, KEPT, Log, time_of
from engine.trace.packing import Packing, Unpacked
from engine.trace.records import Ended, Header, Notice, Record, Step, StepStarted, Submitted, Telemetry, encode
from engine.workloads import demo_workload
from tests.engine.trace.hand_made import header, submitted
from tests.engine.trace.test_records import assert_same, same


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return list(made_up_hour(steps=400, rows=8))


def packed(records: list[Record], kept: int = 100) -> Log:
    log = Log(records, kept=kept)
    assert sum(map(len, log._state.kept)) <= kept + 2 * CHUNK
    assert log.packed_bytes > 0
    return log


def test_every_record_comes_back_by_index_slice_and_iteration(records: list[Record]) -> None:
    log, rng, n = packed(records), random.Random(1), len(records)
    assert len(log) == n
    for read in (
        [log[i] for i in range(n)],
        list(log),
        log[:],
        [log[i - n] for i in range(n)],
        list(reversed(log))[::-1],
    ):
        assert len(read) == n
        for a, b in zip(read, records):
            assert_same(a, b)
    encoded = [encode(r) for r in records]
    for _ in range(200):
        a, b = rng.randint(-n - 5, n + 5), rng.randint(-n - 5, n + 5)
        step = rng.choice([1, 1, 2, -1])
        found = log[a:b:step]
        assert type(found) is list
        assert [encode(r) for r in found] == encoded[a:b:step]
    for beyond in (n, -n - 1):
        with pytest.raises(IndexError):
            log[beyond]


def test_what_was_packed_cannot_be_changed(records: list[Record]) -> None:
    step = next(r for r in packed(records) if isinstance(r, Step))
    with pytest.raises(ValueError, match="read-only"):
        step.token[0] = 3


def test_the_records_of_a_real_run_are_packed_unchanged(demo: Engine) -> None:
    params = SamplingParams(max_tokens=40, temperature=0.8, logprobs=2, stop=("zzz", "é"), seed=3, n=2)
    trace = demo.begin(EngineConfig(max_running=8, prefix_caching=True))
    prompts = [[{"role": "user", "content": f"Tell me of {i} bears"}] for i in range(4)]
    demo.submit_many([Submission(p, params, label="ein Bär") for p in prompts])
    for stream in demo.submit_many([Submission(a.prompt, params) for a in demo_workload(4).arrivals]):
        stream.results(timeout=60)
    records = trace.since(0)
    assert {Header, Submitted, StepStarted, Step, Ended} <= {type(r) for r in records}
    assert any(len(r.alt_token) and len(r.copied) for r in records if isinstance(r, Step))
    for begin in range(0, len(records), 50):
        packing = Packing(records[begin : begin + 50])
        assert all(piece is None for piece in packing)
        for a, b in zip(Unpacked(packing.packed), records[begin : begin + 50], strict=True):
            assert_same(a, b)


@pytest.mark.parametrize(
    "arrays",
    [
        ([], [1, 2], [3]),
        ([5, -7, 2**31 - 1], [-(2**31), 0, 1], [9, 9, 9]),
        ([1], [2.5], [3]),  # of two types
        ([[1, 2], [3, 4]], [[5, 6]], []),
    ],
)
def test_arrays_of_any_kind_come_back_read_only(arrays: tuple[Any, ...]) -> None:
    columns = [np.array(a, np.float64 if 2.5 in np.ravel(a) else np.int32) for a in arrays]
    packing = Packing([Submitted(0.0, i, "\ud83d", c, SamplingParams()) for i, c in enumerate(columns)])
    list(packing)
    for back, column in zip(Unpacked(packing.packed), columns, strict=True):
        assert isinstance(back, Submitted)
        assert same(back.token_ids, column)
        assert not back.token_ids.flags.writeable
        assert back.text == "\ud83d"


def test_a_short_trace_keeps_its_objects() -> None:
    records: list[Record] = [Notice(float(i), "info", str(i)) for i in range(KEPT + CHUNK - 1)]
    log = Log(records)
    assert log.packed_bytes == 0
    assert all(a is b for a, b in zip(log, records, strict=True))
    assert list(log) == records
    assert log != records[:-1]


def test_a_moment_is_found_without_unpacking(records: list[Record], monkeypatch: pytest.MonkeyPatch) -> None:
    log = packed(records)
    monkeypatch.setattr("engine.trace.log.Unpacked", lambda *_: pytest.fail("a record was unpacked"))
    times = [time_of(r) for r in records]
    assert times == sorted(times)
    for moment in (-1.0, 0.0, times[50], times[-1], times[-1] + 1):
        assert bisect_right(log.times, moment) == sum(t <= moment for t in times)
    steps = [(i, r) for i, r in enumerate(records) if isinstance(r, Step)]
    assert log.step_places.tolist() == [i for i, _ in steps]
    assert log.step_begins.tolist() == [r.started for _, r in steps]
    assert log.step_ends.tolist() == [r.ended for _, r in steps]


def test_times_never_fall() -> None:
    log = Log([Telemetry(2.0, 1.0, 1, 1), submitted(1.0, 0, 3), Notice(3.0, "info", "")])
    assert log.times.tolist() == [2.0, 2.0, 3.0]


def test_what_was_forgotten_is_gone_and_the_rest_keeps_its_place(records: list[Record]) -> None:
    trace = Trace([header(EngineConfig()), *records[1:300]])
    trace.forget(120)
    trace.extend(records[300:])
    assert len(trace.records) == len(records)
    assert trace.since(120) == records[120:]
    with pytest.raises(IndexError, match="record 119 was let go"):
        _ = trace.records[119]
    trace.forget(len(records))
    assert trace.since(len(records)) == []
    assert trace.header.model.source == "made"


def test_columns_begin_with_the_first_record_that_is_left(records: list[Record]) -> None:
    whole, log = Log(records), Log(kept=50)
    for place, record in enumerate(records):
        log.append(record)
        if place % 100 == 99:
            log.forget(place - 20)
    first = len(records) - len(log.times)
    assert first > 0
    assert len(log.times) < 200
    assert log.times == whole.times[first:]
    steps = len(log.step_places)
    assert 0 < steps < 200
    for name in ("step_places", "step_begins", "step_ends", "step_running", "step_kv"):
        assert getattr(log, name) == getattr(whole, name)[-steps:], name
    assert log.step_places[0] >= first
    log.forget(len(log))
    assert (list(log.times), log.latest) == ([], whole.times[-1])
    log.append(Notice(0.0, "info", ""))
    assert list(log.times) == [whole.times[-1]], "times do not fall"


def test_a_log_that_packs_after_it_forgot_still_reads(records: list[Record]) -> None:
    log = Log(records[:77], kept=50)
    log.forget(70)
    for record in records[77:]:
        log.append(record)
    assert log.packed_bytes > 0
    for i in range(70, len(records)):
        assert_same(log[i], records[i])


def test_readers_on_other_threads_never_miss_a_record(records: list[Record]) -> None:
    log, errors, stop = Log(kept=64), [], threading.Event()

    def read(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not stop.is_set():
                n = len(log)
                for _ in range(50 if n else 0):
                    at = rng.randrange(n)
                    assert time_of(log[at]) == time_of(records[at])
                    end = min(n, at + 40)
                    assert [time_of(r) for r in log[at:end]] == [time_of(r) for r in records[at:end]]
        except Exception as error:
            errors.append(error)

    readers = [threading.Thread(target=read, args=(i,)) for i in range(3)]
    for reader in readers:
        reader.start()
    for record in records:
        log.append(record)
        if len(log) % 64 == 0:
            time.sleep(0.005)
    stop.set()
    for reader in readers:
        reader.join()
    assert not errors


def test_logs_are_told_apart_without_comparing_their_arrays(records: list[Record]) -> None:
    log = packed(records)
    assert log == log
    assert log != packed(records)
    assert log != records
    assert {log} == {log}
