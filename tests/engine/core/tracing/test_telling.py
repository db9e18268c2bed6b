"""What a step has to tell is told while the next one computes: in the same order, all of it, and no later than that."""

import time

import pytest
import torch

from engine import Engine, EngineConfig, SamplingParams, Submission
from engine.core.tracing.telling import Telling
from engine.kernels.cpu.library import native
from engine.models.attention import Timer
from engine.runner.launched_step import LaunchedStep
from engine.runner.runner import Computed, Inputs, Runner
from engine.scheduler.plan import StepPlan
from engine.trace import Ended, Notice, Record, Step, StepStarted, Telemetry, Trace

GOES_ON = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)


@pytest.mark.skipif(native().library is None, reason=native().why)
def test_a_step_is_told_of_while_the_next_computes(large_demo: Engine) -> None:
    large_demo.begin(EngineConfig(max_running=4))
    assert large_demo.runner.overlaps
    told: list[tuple[Record, int]] = []
    large_demo.trace.listen(lambda record: told.append((record, large_demo.scheduler.ledger.in_flight)))
    asked = [Submission(f"A story of {n} foxes", GOES_ON.with_(max_tokens=8 + 4 * n)) for n in range(2)]
    streams = large_demo.submit_many(asked)
    assert [len(stream.result(timeout=60).token_ids) for stream in streams] == [8, 12]
    with_steps = [(type(record), under_way) for record, under_way in told if isinstance(record, (Step, StepStarted))]
    assert [kind for kind, _ in with_steps] == [StepStarted, Step] * (len(with_steps) // 2), "one after the other"
    assert {under_way for _, under_way in with_steps[:-1]} == {1}, "the next step is in flight by then"
    assert with_steps[-1][1] == 0, "after the last one there is none to wait for"
    records = [record for record, _ in told if not isinstance(record, Telemetry)]  # which comes when it comes
    assert isinstance(records[-1], Ended)
    assert records[-1].request == streams[1].request
    for i, record in enumerate(records):
        if isinstance(record, Ended):
            last = next(step for step in reversed(records[:i]) if isinstance(step, Step))
            assert record.request in last.request
            assert last.ended <= record.time
    again = large_demo.submit("A story of a kite", GOES_ON)  # what is told of while nothing follows comes at once, too
    next(iter(again))
    again.cancel()
    assert again.result(timeout=60).finish_reason == "cancelled"
    until = time.monotonic() + 60
    while not isinstance(large_demo.trace.records[-1], Ended):
        assert time.monotonic() < until


class OnGpu(Runner):
    """Notes what a launch does, in its order."""

    noted: list[str]

    def _prepare(self, plan: StepPlan) -> Inputs:
        self.noted.append("prepared")

        def compute(_: Timer | None) -> Computed:
            self.noted.append("launched")
            return Computed(torch.zeros(0, 1))

        return Inputs([], compute)


def test_a_gpu_has_its_step_before_the_host_tells_of_the_one_before(
    demo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LaunchedStep, "mark", lambda self: None)  # an event of CUDA's
    runner = OnGpu(demo.model, EngineConfig())
    runner.noted = []
    for on_gpu, order in ((True, ["prepared", "launched", "told"]), (False, ["prepared", "told", "launched"])):
        runner._meanwhile = lambda: runner.noted.append("told")
        runner._launch(LaunchedStep(StepPlan(()), 0.0), on_gpu)
        assert runner.noted == order
        runner.noted.clear()


@pytest.mark.parametrize("copies", [(), ((1, 2),)], ids=["no copies", "copies"])
def test_a_step_takes_a_gpu_what_it_computes_and_moves_and_not_what_the_host_lays_out(
    copies: tuple[tuple[int, int], ...], demo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = OnGpu(demo.model, EngineConfig())
    runner.noted = []
    monkeypatch.setattr(LaunchedStep, "mark", lambda self: runner.noted.append("marked"))
    runner._launch(LaunchedStep(StepPlan((), copies=copies), 0.0), True)
    begins = ["marked", "prepared"] if copies else ["prepared", "marked"]
    assert runner.noted == [*begins, "launched", "marked"]


def test_what_goes_wrong_beside_a_step_is_no_fault_of_the_step() -> None:
    trace = Trace()
    telling = Telling(trace)
    first, second = Notice(0.0, "info", "first"), Notice(0.0, "info", "second")
    telling.later(lambda beside: Notice(0.0, "info", f"{beside}"))
    telling(first)
    assert [record.text for record in trace.records] == ["False", "first"]  # type: ignore[union-attr]
    telling.later(lambda beside: Notice(0.0, "info", f"{beside}"))
    telling.beside()
    assert trace.records[-1] == Notice(0.0, "info", "True")

    def fail(beside: bool) -> Record:
        raise RuntimeError("a record that cannot be made")

    telling.later(fail)
    telling.beside()
    with pytest.raises(RuntimeError, match="a record that cannot be made"):
        telling(second)
    telling(second)
    assert trace.records[-1] is second
