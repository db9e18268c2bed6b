"""The records of beam searches: in a file and back, refused where they cannot be, and left out in older files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Trace, load_trace, save_trace
from engine.trace import Ended, Step
from engine.trace.records import decode, encode
from engine.trace.records.check import RecordCheck


@pytest.fixture(scope="module")
def trace() -> Trace:
    with Engine(ModelSpec(device="cpu"), EngineConfig(max_running=4), threads=1) as engine:
        params = SamplingParams(max_tokens=12, beam_width=3, ignore_eos=True)
        engine.submit("The sun was", params).results(60)
        return engine.trace


def test_a_search_is_read_back_from_its_file(trace: Trace, tmp_path: Path) -> None:
    save_trace(trace, tmp_path / "beams.bsrun")
    back = load_trace(tmp_path / "beams.bsrun")
    for ours, theirs in zip(trace.steps, back.steps, strict=True):
        for name in ("beam_request", "beam_parent", "beam_branch", "beam_token", "beam_score", "beam_fate"):
            assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()
        assert ours.beam_text == theirs.beam_text
    views = trace.requests[0].samples, back.requests[0].samples
    assert [sample.score for sample in views[0]] == [sample.score for sample in views[1]]
    assert all(sample.score is not None for sample in views[1])
    assert views[0][0].text == views[1][0].text


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("beam_request", 7, "was not submitted"),
        ("beam_parent", 3, "beam outside"),
        ("beam_parent", -1, "beam outside"),
        ("beam_branch", 3, "beam outside"),
        ("beam_branch", -2, "beam_branch outside"),
        ("beam_fate", 3, "beam_fate outside"),
    ],
)
def test_what_no_search_can_have_done_is_refused(trace: Trace, name: str, value: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        checked(trace, name, value)


def checked(trace: Trace, name: str, value: int) -> None:
    """Looks at the trace with this value first in a column of its searches."""
    check = RecordCheck()
    for record in trace.records:
        if isinstance(record, Step) and len(record.beam_request):
            column = getattr(record, name).astype(np.int64)
            column[0] = value
            record = replace(record, **{name: column})
        check(record)


def test_columns_of_two_lengths_are_refused(trace: Trace) -> None:
    check, step = RecordCheck(), next(step for step in trace.steps if len(step.beam_request))
    for record in trace.records:
        if record is step:
            break
        check(record)
    with pytest.raises(ValueError, match="beam_text"):
        check(replace(step, beam_text=step.beam_text[1:]))


def test_an_older_record_has_no_search(trace: Trace) -> None:
    step = next(step for step in trace.steps if len(step.beam_request))
    kind, data = encode(replace(step, **{f"beam_{name}": step.beam_request[:0] for name in ("request", "token")}))
    assert decode(kind, data).beam_request.tolist() == []  # type: ignore[union-attr]
    ended = next(record for record in trace.records if isinstance(record, Ended))
    kind, data = encode(replace(ended, score=None))
    old = decode(kind, data.replace(b',"score":null', b""))
    assert isinstance(old, Ended)
    assert old.score is None
