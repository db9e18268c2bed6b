"""Requests of two priorities through a real engine: who joins first, and what each of both waited."""

from collections.abc import Iterator

import pytest

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, Trace, load_workload, measure
from engine.compare import compare


@pytest.fixture(scope="module")
def traces() -> Iterator[dict[str, Trace]]:
    workload = load_workload("two-classes", count=16)
    with Engine(ModelSpec("demo"), threads=1) as engine:
        yield {
            admission: engine.run(workload, EngineConfig("continuous", 2, admission=admission)).result(120)
            for admission in ("fcfs", "priority")
        }


def overtaken(trace: Trace) -> int:
    """How many joined while somebody of a lower number waited, who had been there since before the step was planned."""
    known, found = trace.requests, 0
    joined: dict[int, float] = {}
    for step in trace.steps:
        for request in step.request.tolist():
            joined.setdefault(request, step.started)
    for request, moment in joined.items():
        waiting = (other for other, later in joined.items() if known[other].submitted < moment - 0.05 < moment < later)
        found += any(known[other].params.priority < known[request].params.priority for other in waiting)
    return found


def test_nobody_joins_before_somebody_of_a_lower_number_who_waits(traces: dict[str, Trace]) -> None:
    assert overtaken(traces["fcfs"]) > 0, "those that came later wait behind all before them"
    assert overtaken(traces["priority"]) == 0
    texts = [{v.request: v.samples[0].text for v in trace.requests.values()} for trace in traces.values()]
    assert texts[0] == texts[1], "the answers are the same"


def test_what_each_priority_waited_is_told_apart(traces: dict[str, Trace]) -> None:
    plain, sorted_ = (measure(trace) for trace in traces.values())
    for metrics in (plain, sorted_):
        assert [(each.priority, each.name, each.requests) for each in metrics.classes] == [
            (-1, "urgent", 12),
            (0, "patient", 16),
        ]
    assert sorted_.classes[0].ttft.p50 < plain.classes[0].ttft.p50
    for one, trace in zip((plain, sorted_), traces.values()):
        waits = [v.ttft for v in trace.requests.values() if v.label == "urgent"]
        assert min(waits) <= one.classes[0].ttft.p50 <= max(waits)
    table = compare(["fcfs", "priority"], [[plain], [sorted_]])
    row = table.row("ttft.p50.-1")
    assert row is not None
    assert row.measure.name == "TTFT p50, urgent"
    assert [cell.value for cell in row.cells] == [plain.classes[0].ttft.p50, sorted_.classes[0].ttft.p50]
    names = [each.measure.name for each in table.rows]
    assert names.index("TTFT p50, urgent") == names.index("TTFT p99") + 1
    assert "E2E latency p50, patient" in names


def test_a_run_of_one_priority_has_no_classes(traces: dict[str, Trace]) -> None:
    with Engine(ModelSpec("demo"), threads=1) as engine:
        engine.submit("The sun was", SamplingParams(max_tokens=2)).result(60)
        metrics = measure(engine.trace)
    assert metrics.classes == ()
    assert not [row for row in compare(["one"], [[metrics]]).rows if row.measure.key.startswith("ttft.p50.")]


@pytest.mark.parametrize("priority", [0.5, "1", 10**7, True])
def test_a_priority_is_a_whole_number(priority: object) -> None:
    with pytest.raises(InvalidInput, match=r"priority="):
        SamplingParams(priority=priority)  # type: ignore[arg-type]
