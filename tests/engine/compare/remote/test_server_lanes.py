"""Lanes that are real servers: what is counted, what is said to be unknown, what ends badly."""

from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from engine import Engine, InvalidInput, ModelSpec, SamplingParams, Workload, load_trace, measure, save_trace
from engine.compare import Race, Sweep, compare_race
from engine.compare.host import LocalHost
from engine.compare.lane import Lane
from engine.compare.race_file import load_race, save_race
from engine.compare.remote import Server
from engine.compare.remote.player import ServerPlayer
from engine.compare.remote.probe import ABILITIES, probe
from engine.config.specs import EngineConfig
from engine.trace import FinishReason, Notice, RequestView, Slo, Trace
from engine.workloads import Arrival, demo_workload
from tests.engine.compare.remote.breaking import DONE, USAGE, WHOLE, answering, event

GREEDY = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
SHORT = demo_workload(4, GREEDY)


def played(server: Server, workload: Workload) -> Trace:
    player = ServerPlayer(server)
    try:
        return player.run(workload).result(30)
    finally:
        player.close()


def views(trace: Trace) -> list[RequestView]:
    return [view for _, view in sorted(trace.requests.items())]


def test_our_own_server_can_all_that_is_asked(ours: Server) -> None:
    able = probe(ours)
    assert able.model == "demo"
    assert not able.lacks


def test_a_run_is_seen_from_outside(ours: Server, tmp_path: Path) -> None:
    trace = played(ours, SHORT)
    metrics = measure(trace, Slo(e2e=60))
    assert (metrics.completed, metrics.output_tokens, metrics.met) == (4, 4 * 12, 4)
    assert metrics.prompt_tokens > 4 * 4
    assert metrics.outside
    assert 0 < metrics.ttft.mean <= metrics.e2e.mean <= metrics.duration
    assert all(view.reason is FinishReason.LENGTH and len(view.text) > 12 for view in views(trace))
    assert {place for step in trace.steps for place in step.slot.tolist()} <= set(range(4))
    save_trace(trace, tmp_path / "lane.bsrun")  # its check reads every record
    again = load_trace(tmp_path / "lane.bsrun")
    assert measure(again, Slo(e2e=60)) == metrics
    assert again.header.outside == ours.place


class Lender(LocalHost):
    """Hands out one engine that is loaded already."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine, self._spec = engine, ModelSpec()

    def close(self) -> None:
        pass


def test_a_race_says_what_is_not_known(large_demo: Engine, ours: Server, llamacpp: Server, tmp_path: Path) -> None:
    lanes = [Lane(EngineConfig(max_running=4)), Lane(server=ours), Lane(server=llamacpp)]
    result = Race(SHORT, lanes, kv_tokens=1024).play(Lender(large_demo), lambda event: None, Event())
    assert [result.error(i) for i in range(3)] == ["", "", ""]
    texts = [[view.text for view in views(result.traces(i)[0])] for i in range(3)]
    assert texts[0] == texts[1] == texts[2]  # the same model in float32, greedily, here and at both servers
    table = compare_race(result, Slo(ttft=60))
    for key in ("completed", "output_throughput", "goodput", "ttft.p99", "itl.mean", "e2e.p50"):
        row = table.row(key)
        assert row is not None
        assert None not in [cell.value for cell in row.cells]
    for key in ("steps", "mean_rows", "wasted_row_share", "kv.used", "average_latency"):
        row = table.row(key)
        assert row is not None
        assert [cell.value is None for cell in row.cells] == [False, True, True]
    assert sum("not known from outside" in remark for remark in table.remarks) == 2
    save_race(result, tmp_path / "race.bsrace")
    again, _ = load_race(tmp_path / "race.bsrace")
    assert again.lanes == result.lanes
    assert compare_race(again, Slo(ttft=60)) == table


def test_llamacpp_can_what_facts_say(llamacpp: Server) -> None:
    able = probe(llamacpp)
    assert able.model == "stories"
    assert able.lacks <= {"seed"}


def test_samples_and_token_ids_are_counted_from_usage(llamacpp: Server) -> None:
    ids = Arrival(0.0, [1, 400, 401], replace(GREEDY, n=2, temperature=1.0, seed=3))
    trace = played(llamacpp, Workload("ids", (ids,)))
    metrics = measure(trace)
    assert (metrics.completed, metrics.prompt_tokens, metrics.output_tokens) == (1, 3, 24)


def test_a_cancelled_lane_ends_its_requests(ours: Server) -> None:
    player = ServerPlayer(ours)
    try:
        run = player.run(demo_workload(2, replace(GREEDY, max_tokens=900)))
        while not run.trace.records.step_ends:
            run.wait(0.01)
        run.cancel()
        assert run.wait(60)
        assert [view.reason for view in views(run.trace)] == [FinishReason.CANCELLED] * 2
    finally:
        player.close()


# A server that breaks off.


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (event("a") + event("b"), "without [DONE]"),
        (event("a") + event("", '"stop"'), "without [DONE]"),
        (event("a") + DONE, "without a finish reason"),
        (event("a") + 'data: {"error":{"message":"out of blocks"}}\n\n', "out of blocks"),
        (event("a") + "data: {nonsense\n\n", "no JSON"),
    ],
)
def test_an_answer_that_is_not_whole_is_an_error(broken: str, why: str) -> None:
    with answering(*[WHOLE] * 7, broken) as server:  # seven to probe it
        trace = played(server, Workload.at_once("one", ["Once"], GREEDY))
    (view,) = views(trace)
    assert view.reason is FinishReason.ERROR
    assert why in view.error
    assert view.text.startswith("a")
    assert measure(trace).completed == 0


def test_tokens_that_come_together_are_counted_and_are_one_emission() -> None:
    with answering(WHOLE) as server:
        trace = played(server, Workload.at_once("one", ["Once"], replace(GREEDY, ignore_eos=False)))
    metrics = measure(trace)
    assert (metrics.prompt_tokens, metrics.output_tokens) == (5, 7)
    assert metrics.longest_stall == trace.records.step_ends[1] - trace.records.step_ends[0]
    assert views(trace)[0].text == "abc"
    said = [record.text for record in trace.records if isinstance(record, Notice)]
    assert any("ignore_eos" not in text and "no " in text for text in said)  # its answers are no JSON


def test_without_usage_pieces_are_counted_and_that_is_said() -> None:
    with answering(event("a") + event("b") + event("c", '"stop"') + DONE) as server:
        player = ServerPlayer(server)
        try:
            assert "usage" in player.capabilities.lacks
            trace = player.run(Workload.at_once("one", ["Once"], GREEDY)).result(60)
        finally:
            player.close()
    assert measure(trace).output_tokens == 3
    assert any(ABILITIES["usage"] in words for words in trace.header.lacks)


def test_where_done_is_never_said_the_finish_reason_is_enough_and_that_is_said() -> None:
    whole = event("a") + event("", '"length"', USAGE)
    for last, reason in ((whole, FinishReason.LENGTH), (event("a"), FinishReason.ERROR)):
        with answering(*[whole] * 7, last) as server:
            trace = played(server, Workload.at_once("one", ["Once"], GREEDY))
        assert [view.reason for view in views(trace)] == [reason]
        assert any(ABILITIES["done"] in words for words in trace.header.lacks)


# What cannot be begun.


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ({"streams": [event("a") + DONE]}, "without a finish reason"),
        ({"streams": ['{"choices":[]}']}, "does not stream"),
        ({"streams": ['{"detail":"no such model"}'], "status": 404}, "no such model"),
        ({"streams": ["{}"], "status": 401}, "asks for a key"),
        ({"streams": [WHOLE], "models": '{"data":[{"id":"a"},{"id":"b"}]}'}, "it has a, b"),
        ({"streams": [WHOLE], "models": "[]"}, "does not list any"),
    ],
)
def test_what_nothing_can_be_played_at_is_refused(server: dict[str, object], why: str) -> None:
    streams = server.pop("streams")
    with answering(*streams, **server) as there, pytest.raises(InvalidInput, match=r".") as error:  # type: ignore[arg-type,misc]
        probe(there)
    assert why in str(error.value)


def test_where_nobody_listens_the_lane_fails_and_says_so() -> None:
    with LocalHost() as host:
        lane = Lane(server=Server("http://127.0.0.1:9"))
        result = Race(SHORT, [lane]).play(host, lambda event: None, Event())
    assert "nothing answers at http://127.0.0.1:9" in result.error(0)


def test_what_no_server_can_be_asked_is_refused(ours: Server) -> None:
    player = ServerPlayer(ours)
    try:
        with pytest.raises(InvalidInput, match="beam search"):
            player.run(Workload.at_once("beams", ["a"], SamplingParams(beam_width=2)))
    finally:
        player.close()
    with pytest.raises(InvalidInput, match="sweep its rates"):
        Sweep(SHORT, [Lane(server=ours)], sizes=[1, 2])


def test_a_key_comes_from_the_environment_and_stays_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = Server("http://127.0.0.1:9", key="LANE_KEY")
    monkeypatch.delenv("LANE_KEY", raising=False)
    with pytest.raises(InvalidInput, match="LANE_KEY"):
        probe(server)
    monkeypatch.setenv("LANE_KEY", "sk-secret")
    assert server.secret == "sk-secret"
    assert "sk-secret" not in repr(server) + server.text()
    with pytest.raises(InvalidInput) as error:
        probe(server)
    assert "sk-secret" not in str(error.value)
