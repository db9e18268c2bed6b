"""A running engine takes another budget for its next step, here and in a process of its own, and its trace says so."""

from collections.abc import Iterator

import pytest

from engine import Engine, EngineConfig, EngineProcess, InvalidInput, ModelSpec, SamplingParams, load_trace, save_trace
from engine.config import LiveBudget
from engine.core import EngineFace
from engine.trace import Steered, Step

CONFIG = EngineConfig("chunked", max_running=8, token_budget=64)
LONG = SamplingParams(max_tokens=120, temperature=0, ignore_eos=True)


@pytest.fixture(params=["here", "process"])
def engine(request: pytest.FixtureRequest, demo: Engine) -> Iterator[EngineFace]:
    if request.param == "here":
        demo.begin(CONFIG)
        yield demo
    else:
        with EngineProcess(ModelSpec("demo"), CONFIG, threads=1) as process:
            yield process


def test_what_is_set_holds_from_the_next_step_on_and_is_recorded(engine: EngineFace, tmp_path) -> None:  # type: ignore[no-untyped-def]
    streams = [engine.submit(f"A story of {n} foxes and a kite", LONG) for n in range(8)]
    for stream in streams:
        next(iter(stream))
    assert engine.steer(max_running=2) == LiveBudget(64, 2)
    assert engine.steer(token_budget=16, prefill_share=0.5) == LiveBudget(16, 2, 0.5) == engine.budget
    assert engine.steer(target_itl=0.25) == LiveBudget(16, 2, 0.5, 0.25) == engine.budget
    assert engine.steer(max_running=2) == engine.budget, "what is in force already is no change"
    with pytest.raises(InvalidInput, match=r"max_running=9: .*at most 8"):
        engine.steer(max_running=9)
    said = [stream.result(timeout=60).token_ids for stream in streams]
    records = list(engine.trace.records)
    at = [i for i, record in enumerate(records) if isinstance(record, Steered)]
    assert [records[i] for i in at] == [
        Steered(records[at[0]].time, 64, 2, 1.0),
        Steered(records[at[1]].time, 16, 2, 0.5),
        Steered(records[at[2]].time, 16, 2, 0.5, 0.25),
    ]
    rows = [record.rows for record in records[at[0] :] if isinstance(record, Step)]
    assert max(rows[2:]) <= 2
    save_trace(engine.trace, tmp_path / "run.bsrun")
    again = [record for record in load_trace(tmp_path / "run.bsrun").records if isinstance(record, Steered)]
    assert again == [records[i] for i in at]
    engine.begin(CONFIG)
    assert engine.budget == LiveBudget(64, 8)
    free = [engine.submit(f"A story of {n} foxes and a kite", LONG) for n in range(8)]
    assert [stream.result(timeout=60).token_ids for stream in free] == said


def test_a_closed_engine_is_not_steered() -> None:
    with EngineProcess(ModelSpec("demo"), CONFIG, threads=1) as process:
        pass
    with pytest.raises(InvalidInput, match="closed"):
        process.steer(max_running=2)
