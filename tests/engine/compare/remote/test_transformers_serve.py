"""`transformers serve` raced against our own server, as lanes."""

from threading import Event

import pytest

from engine import SamplingParams
from engine.compare import Race, compare_race
from engine.compare.host import LocalHost
from engine.compare.lane import Lane
from engine.compare.remote import Server
from engine.compare.remote.probe import ABILITIES
from engine.trace import Slo
from engine.workloads import demo_workload


@pytest.mark.timeout(300)
def test_transformers_serve_races_ours_and_says_the_same(ours: Server, transformers: Server) -> None:
    workload = demo_workload(4, SamplingParams(max_tokens=12, temperature=0))
    with LocalHost() as host:
        result = Race(workload, [Lane(server=ours), Lane(server=transformers)]).play(host, lambda event: None, Event())
    assert [result.error(i) for i in range(2)] == ["", ""]
    ours_, theirs = (result.traces(i)[0] for i in range(2))
    texts = [[view.text for _, view in sorted(trace.requests.items())] for trace in (ours_, theirs)]
    assert texts[0] == texts[1]
    table = compare_race(result, Slo(ttft=60))
    for key, values in (("completed", [4, 4]), ("output_throughput", None), ("ttft.p95", None), ("itl.p95", None)):
        row = table.row(key)
        assert row is not None
        assert all(cell.value is not None for cell in row.cells)
        assert key == "itl.p95" or all(cell.value for cell in row.cells), "pieces may come together"
        assert values is None or [cell.value for cell in row.cells] == values
    lacks = set(theirs.header.lacks)
    assert lacks >= {f"no {ABILITIES[name]}" for name in ("done", "ignore_eos", "token_ids", "logprobs", "n")}
    assert f"no {ABILITIES['usage']}" not in lacks
    assert not ours_.header.lacks
