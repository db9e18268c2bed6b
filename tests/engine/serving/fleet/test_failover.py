"""A fleet answers as one engine does, and a replica that is killed changes no answer."""

import os
import signal
import threading
from typing import Any

import httpx2
import pytest

from engine import EngineConfig, EngineProcess, InvalidInput, ModelSpec, SamplingParams, Submission
from engine.core import Completion
from engine.serving import ServingSettings
from engine.serving.fleet import Fleet, keeper, local_fleet
from engine.trace import Ended, FinishReason, Header, Notice, Step, Submitted
from engine.trace.records.check import RecordCheck
from tests.engine.serving.conftest import serving
from tests.engine.serving.fleet.conftest import busiest, kill, said, story, undisturbed, whole
from tests.engine.serving.fleet.disturbed import calm, client, lose_one
from tests.waiting import until

KILLS = int(os.environ.get("KILLS", "2"))  # 20 for the long one
SMALL = EngineConfig(max_running=4, token_budget=512, kv_memory=4 << 20)
SCHEMA = '{"type": "object", "properties": {"hero": {"type": "string", "minLength": 40}}, "required": ["hero"]}'
KINDS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1.0},
    {"temperature": 1.0, "n": 3},
    {"temperature": 1.0, "frequency_penalty": 0.8, "repetition_penalty": 1.2},
    {"temperature": 1.0, "json_schema": SCHEMA},
    {"temperature": 1.0, "logprobs": 2, "min_tokens": 40},
    {"temperature": 0, "ignore_eos": True, "stop": ("no such end",)},
    {"temperature": 1.0, "prompt_logprobs": 1},
]


def prompts_of(completions: list[Completion]) -> list[float]:
    return [token.logprob for c in completions for token in c.prompt_logprobs or () if token is not None]


def test_kinds_of_requests_go_on_with_the_text_tokens_and_reason_of_an_undisturbed_run(
    fleet: Fleet, alone: EngineProcess
) -> None:
    params = [SamplingParams(max_tokens=70, seed=i, **kind) for i, kind in enumerate(KINDS)]
    prompts = [story(i) for i in range(len(params))]
    want = undisturbed(alone, prompts, params)
    for turn in range(2):
        streams = fleet.submit_many([Submission(p, each) for p, each in zip(prompts, params)])
        until(lambda: min(len(s.deltas) for s in streams) > 25 * turn)  # noqa: B023
        deaths = fleet.state["deaths"]
        kill(busiest(fleet))
        for stream, one in zip(streams, want):
            got = stream.results(timeout=60)
            assert said(got) == said(one)
            assert [c.logprobs for c in got] == [pytest.approx(c.logprobs, abs=1e-4) for c in one]
            assert prompts_of(got) == pytest.approx(prompts_of(one), abs=1e-4)
        until(lambda: whole(fleet))
        assert fleet.state["deaths"] == deaths + 1


def test_the_trace_is_that_of_one_engine_with_the_slots_and_blocks_of_all(fleet: Fleet) -> None:
    check, records = RecordCheck(), fleet.trace.since(0)
    for record in records:
        check(record)
    header = fleet.trace.header
    assert (header.blocks, header.config.max_running) == (2 * fleet.living[0].blocks, 64)
    submitted = [record.request for record in records if isinstance(record, Submitted)]
    assert sorted(submitted) == list(range(len(submitted)))
    ends = [(record.request, record.branch) for record in records if isinstance(record, Ended)]
    assert len(ends) == len(set(ends)) == sum(r.params.branches for r in records if isinstance(r, Submitted))
    slots = {slot for r in records if isinstance(r, Step) for slot in r.slot.tolist()}
    assert min(slots) < 32 <= max(slots) < 64
    assert sum(len(r.preempted) for r in records if isinstance(r, Step)) > 0
    notices = [r.text for r in records if isinstance(r, Notice)]
    assert any("is gone" in text and "go on at another" in text for text in notices)
    last = [r for r in records if isinstance(r, Step)][-1]
    assert last.free_blocks + last.cached_blocks == header.blocks
    assert sum(isinstance(r, Header) for r in records) == 1


def test_a_replica_is_killed_again_and_again_under_32_streams_over_http(fleet: Fleet, alone: EngineProcess) -> None:
    want = calm(alone)
    with serving(fleet, ServingSettings(port=0)) as server, client(server) as http:
        for turn in range(KILLS):
            lose_one(fleet, http, want, 0.3 * turn / KILLS)
        state = http.get("/fleet").json()
        assert (len(state["replicas"]), state["open"], state["kills"]) == (2, 0, False)
        assert http.post("/fleet/kill", json={"place": 0}).status_code == 403


def test_who_may_ends_a_replica_over_http_to_show_that_its_streams_go_on(fleet: Fleet, alone: EngineProcess) -> None:
    params = SamplingParams(max_tokens=300, seed=3, ignore_eos=True)
    want = undisturbed(alone, [story(9)], [params])[0]
    settings = ServingSettings(port=0, kills=True)
    with serving(fleet, settings) as server, httpx2.Client(base_url=server.address, trust_env=False) as http:
        stream = fleet.submit(story(9), params)
        until(lambda: len(stream.deltas) > 20)
        told = next(r for r in http.get("/fleet").json()["replicas"] if r["open"])
        assert [(one["request"], one["limit"], one["moves"]) for one in told["requests"]] == [(stream.request, 300, 0)]
        assert 20 < told["requests"][0]["tokens"] < 300
        assert http.post("/fleet/kill", json={"place": told["place"]}).status_code == 200
        assert said(stream.results(timeout=30)) == said(want)
        assert http.get("/fleet").json()["routes"][-1]["moves"] == 1
        assert http.post("/fleet/kill", json={"place": 9}).status_code == 404
        assert http.post("/fleet/kill", json={"place": "all"}).status_code == 400
    until(lambda: whole(fleet))


def test_a_prompt_goes_where_its_prefix_is(fleet: Fleet) -> None:
    long = [7] * 70
    first = fleet.submit_many([Submission([*long, 1], SamplingParams(max_tokens=2, seed=1))])[0]
    first.result(timeout=30)
    others = [fleet.submit([*long, i], SamplingParams(max_tokens=40, seed=1, ignore_eos=True)) for i in (2, 3, 4)]
    for stream in others:
        stream.result(timeout=30)
    routes = {route["request"]: route for route in fleet.state["routes"]}
    assert len({routes[s.request]["place"] for s in (first, *others)}) == 1
    assert routes[others[-1].request]["why"] == "64 tokens of its prefix are there"


def test_a_request_that_is_cancelled_while_it_moves_ends_as_cancelled(fleet: Fleet) -> None:
    until(lambda: whole(fleet))
    streams = [fleet.submit(story(i), SamplingParams(max_tokens=850, seed=i, ignore_eos=True)) for i in range(8)]
    until(lambda: all(s.deltas for s in streams))
    kill(busiest(fleet))
    for stream in streams:
        stream.cancel()
    assert {s.result(timeout=30).finish_reason for s in streams} == {FinishReason.CANCELLED}
    until(lambda: not fleet.state["open"] and whole(fleet))
    until(lambda: sum(r.counts["running"] for r in fleet.living) == 0)


def test_a_replica_that_hangs_is_sent_nobody_and_is_ended(
    fleet: Fleet, alone: EngineProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "SILENCE", 0.5)  # after three seconds without a sign of life
    until(lambda: whole(fleet))
    params = SamplingParams(max_tokens=300, seed=3, ignore_eos=True)
    want, deaths = undisturbed(alone, [story(9)], [params])[0], fleet.state["deaths"]
    stream = fleet.submit(story(9), params)
    until(lambda: len(stream.deltas) > 20)
    hung = busiest(fleet)
    os.kill(hung.about["process"], signal.SIGSTOP)
    until(lambda: hung.silent)
    assert fleet.submit("Once", SamplingParams(max_tokens=2, seed=1)).result(timeout=30).finish_reason == "length"
    assert said(stream.results(timeout=30)) == said(want)
    assert fleet.state["deaths"] == deaths + 1
    until(lambda: whole(fleet))


@pytest.mark.parametrize(("prompt", "params", "names"), [
    ("Once", SamplingParams(beam_width=2), "beam_width=2"),
    ("", SamplingParams(), "prompt"),
    ("Once", SamplingParams(regex="[0-9"), "regex"),
])  # fmt: skip
def test_what_it_cannot_take_is_refused_by_name_and_leaves_nothing(
    fleet: Fleet, prompt: str, params: SamplingParams, names: str
) -> None:
    known = fleet.trace.samples
    with pytest.raises(InvalidInput, match=names):
        fleet.submit(prompt, params)
    assert (fleet.trace.samples, fleet.state["open"]) == (known, 0)


def test_a_fleet_needs_blocks_and_keeps_its_config(fleet: Fleet) -> None:
    with pytest.raises(InvalidInput, match="mode='static'"):
        local_fleet(ModelSpec("demo"), EngineConfig(mode="static"), 2)
    with pytest.raises(InvalidInput, match="replicas=0"):
        local_fleet(ModelSpec("demo"), EngineConfig(), 0)
    with pytest.raises(InvalidInput, match="one engine"):
        fleet.begin(fleet.config)
    with pytest.raises(InvalidInput, match="by itself"):
        fleet.steer(token_budget=1)


def test_a_request_that_three_replicas_die_of_without_a_token_ends_with_an_error() -> None:
    def make(place: int, cancelled: threading.Event) -> EngineProcess:
        engine = EngineProcess(ModelSpec("demo-draft"), SMALL, threads=1)
        os.kill(engine.pid, signal.SIGSTOP)  # it takes requests and does nothing
        return engine

    with Fleet(make, 1) as fleet:
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(fleet.submit([5, 6], SamplingParams(seed=1))))
        asking.start()
        for turn in range(3):
            until(lambda: bool(fleet.living) and fleet.living[0].flights != {})
            kill(fleet.living[0])
            until(lambda: fleet.state["deaths"] == turn + 1)  # noqa: B023
        asking.join()
        ended = answers[0].result(timeout=30)
        assert ended.finish_reason is FinishReason.ERROR
        assert "3 replicas died" in ended.error
        until(lambda: bool(fleet.living))
        kill(fleet.living[0])


def test_an_engine_that_cannot_be_made_again_ends_the_fleet_with_words() -> None:
    made: list[EngineProcess] = []

    def make(place: int, cancelled: threading.Event) -> EngineProcess:
        if made:
            raise InvalidInput("the model is gone")
        made.append(EngineProcess(ModelSpec("demo-draft"), SMALL, threads=1))
        return made[0]

    with Fleet(make, 1) as fleet:
        stream = fleet.submit([5, 6], SamplingParams(seed=1, max_tokens=900, ignore_eos=True))
        until(lambda: bool(stream.deltas))
        made[0].kill()
        ended = stream.result(timeout=30)
        assert (ended.finish_reason, ended.error) == (FinishReason.ERROR, "no replica is left: the model is gone")
        until(lambda: not fleet.alive)
        with pytest.raises(InvalidInput, match="the model is gone"):
            fleet.submit([5, 6])
