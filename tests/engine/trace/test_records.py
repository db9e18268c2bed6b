"""Records cross to bytes and back unchanged, and the index tells what they say."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Engine, SamplingParams, Submission
from engine.trace.records import (
    Ended,
    FinishReason,
    Header,
    Notice,
    Record,
    Step,
    StepStarted,
    Submitted,
    Telemetry,
    decode,
    encode,
    freeze,
)
from engine.workloads import demo_workload


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and np.array_equal(a, b))
    return bool(a == b and type(a) is type(b))


def assert_same(a: Record, b: Record) -> None:
    assert type(a) is type(b)
    for f in fields(a):
        assert same(getattr(a, f.name), getattr(b, f.name)), f.name


def test_every_record_of_a_real_run_comes_back_as_it_was(demo: Engine) -> None:
    params = SamplingParams(max_tokens=12, temperature=0.8, logprobs=2, stop=("zzz", "é"), seed=3)
    workload = demo_workload(6, params)
    streams = demo.submit_many([Submission(a.prompt, a.params, label="ein Bär") for a in workload.arrivals])
    for stream in streams:
        stream.result(timeout=30)
    records = demo.trace.since(0)
    assert {Header, Submitted, StepStarted, Step, Ended} <= {type(r) for r in records}
    for record in records:
        assert_same(record, decode(*encode(record)))


@given(st.text(), st.text(), st.floats(0, 1e9), st.sampled_from(list(FinishReason)))
def test_any_text_survives(text: str, error: str, time: float, reason: FinishReason) -> None:
    for record in (Ended(time, 3, reason, text, error), Notice(time, "warning", text)):
        assert_same(record, decode(*encode(record)))


def test_half_a_surrogate_pair_survives() -> None:
    assert_same(Notice(0.0, "info", "\ud83d"), decode(*encode(Notice(0.0, "info", "\ud83d"))))


def test_what_was_read_back_cannot_be_changed() -> None:
    record = Submitted(0.0, 1, "a", freeze(np.arange(3, dtype=np.int32)), SamplingParams())
    back = decode(*encode(record))
    assert isinstance(back, Submitted)
    with pytest.raises(ValueError, match="read-only"):
        back.token_ids[0] = 9


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("Nothing", b"{}\n"),
        ("Notice", b"not json\n"),
        ("Notice", b"no line"),
        ("Notice", b"{}\n"),
        ("Notice", b'{"time": 1, "level": "info", "text": "a", "color": "red"}\n'),
        ("Ended", b'{"time": 1, "request": 1, "reason": "boredom"}\n'),
        ("Submitted", encode(Submitted(0.0, 1, "a", np.arange(9), SamplingParams()))[1][:-8]),
    ],
)
def test_bytes_that_are_no_record_are_refused(kind: str, data: bytes) -> None:
    with pytest.raises(ValueError, match="not a record of version"):
        decode(kind, data)


def test_a_record_of_an_older_version_lacks_only_what_came_later() -> None:
    kind, data = encode(Telemetry(1.0, 50.0, 10, 20))
    older = data.replace(b',"gpu_watts":0.0', b"")
    assert older != data
    assert_same(decode(kind, older), replace(Telemetry(1.0, 50.0, 10, 20)))
