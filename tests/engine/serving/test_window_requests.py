"""What a window sends is in the log, the spans and the measures as a client's request is, whatever becomes of it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from engine import EngineProcess, InvalidInput, SamplingParams, Submission
from engine.serving import KeyFile, OtlpSettings, RequestLogSettings, ServingSettings, made_key
from engine.trace import FinishReason
from tests.engine.serving.conftest import serving
from tests.engine.serving.request_logs import rows_of
from tests.engine.serving.test_otlp import Collector, collecting, plain
from tests.engine.serving.wires import GREEDY, raw, said, watching
from tests.waiting import until

SAID, STOP = "a marmalade heirloom", "periwinkle"
CHAT: Any = [{"role": "user", "content": SAID}]


@dataclass
class Desk:
    """A server with a log and a collector, at which the key `desk` may have control, with four samples open at once."""

    address: str
    keys: dict[str, str]
    folder: Path
    collector: Collector

    @property
    def rows(self) -> list[dict[str, Any]]:
        return rows_of(str(self.folder / "requests.db"))

    def measured(self) -> str:
        head = {"Authorization": f"Bearer {self.keys['ann']}"}
        return httpx2.get(f"{self.address}/metrics", headers=head, trust_env=False).text


@contextmanager
def at_desk(engine: EngineProcess, folder: Path) -> Iterator[Desk]:
    keys = {}
    for name in ("desk", "ann"):
        keys[name], kept = made_key(name)
        KeyFile(folder / "keys.json").add(kept)
    with collecting() as collector:
        settings = ServingSettings(
            port=0,
            keys=folder / "keys.json",
            controllers=("desk",),
            per_key=4,
            request_log=RequestLogSettings(str(folder / "requests.db"), folder / "requests.spool"),
            otlp=OtlpSettings(collector.url),
        )
        with serving(engine, settings) as server:
            yield Desk(server.address, keys, folder, collector)


@pytest.fixture
def desk(engine: EngineProcess, tmp_path: Path) -> Iterator[Desk]:
    with at_desk(engine, tmp_path) as desk:
        yield desk


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_a_windows_requests_are_in_log_spans_and_measures(desk: Desk, engine: EngineProcess) -> None:
    with watching(desk.address, desk.keys["desk"]) as window, watching(desk.address, desk.keys["ann"]) as other:
        asked = GREEDY.with_(max_tokens=5, n=2, stop=(STOP,))
        both = window.submit_many([Submission(CHAT, asked), Submission("Once", GREEDY.with_(max_tokens=7))])
        results = [stream.results(30) for stream in both]
        long = window.submit("Once", GREEDY.with_(max_tokens=900))
        until(lambda: len(long.deltas) > 3)
        with pytest.raises(InvalidInput, match=r"1 answers are open, and a key takes 4"):
            window.submit_many([Submission("Once", GREEDY.with_(n=2))] * 2)  # one row, as both are refused at once
        long.cancel()
        assert long.result(30).finish_reason is FinishReason.CANCELLED
        with pytest.raises(InvalidInput, match=STOP):
            window.submit("Once", SamplingParams(regex=f"({STOP}"))
        other._link.say({"do": "submit", "call": 7, "submissions": [], "more": False})
        until(lambda: len(desk.rows) == 6)
        left = window.submit("Once", GREEDY.with_(max_tokens=900))
        until(lambda: left.deltas)
        measured = desk.measured()
    until(lambda: len(desk.rows) == 7)
    by_end = sorted(desk.rows, key=lambda row: row["time"].timestamp() + row["latency_seconds"])
    assert {(row["route"], row["model"], row["stream"]) for row in by_end} == {("/v1/watch", "demo", True)}
    assert [row["key_name"] for row in by_end].count("desk") == 6
    told = [(row["status"], row["error"], row["finish_reasons"]) for row in by_end]
    assert sorted(told[:2], key=lambda one: len(one[2])) == [(200, None, ["length"]), (200, None, ["length"] * 2)]
    assert sorted((status, error or "") for status, error, _ in told[2:]) == [
        (400, "invalid_value: regex"),
        (403, "no_control"),
        (429, "rate_limit_exceeded"),
        (499, "client_left"),
        (499, "client_left"),
    ]
    chat = next(row for row in by_end if len(row["finish_reasons"]) == 2)
    assert (chat["prompt_tokens"], chat["output_tokens"]) == (len(engine.encode(CHAT)), 10)
    assert chat["parameters"] == {"max_tokens": 5, "temperature": 0, "ignore_eos": True, "n": 2, "stop": 1}
    assert 0 <= chat["queue_seconds"] <= chat["ttft_seconds"] <= chat["latency_seconds"] < 30
    cut = [row for row in by_end if row["status"] == 499]
    assert all(0 < row["output_tokens"] < 900 and row["finish_reasons"] == ["abort"] for row in cut)
    assert all(row["id"].startswith("window-") for row in by_end)
    for content in (path.read_bytes() for path in desk.folder.glob("requests*")):
        for word in (SAID, STOP, results[0][0].text.strip()):
            assert word.encode() not in content
    assert 'vllm:request_success_total{engine="0",finished_reason="length",model_name="demo"} 3.0' in measured
    assert 'finished_reason="abort",model_name="demo"} 1.0' in measured


def test_spans_of_windows_are_named_by_what_was_asked(engine: EngineProcess, tmp_path: Path) -> None:
    with at_desk(engine, tmp_path) as desk, watching(desk.address, desk.keys["desk"]) as window:
        for prompt in (CHAT, "Once", [5, 6]):
            window.submit(prompt, GREEDY.with_(max_tokens=2)).result(30)
        until(lambda: len(desk.rows) == 3)
    whole = [span for span in desk.collector.spans if span.name.endswith(" demo")]
    assert sorted(span.name for span in whole) == ["chat demo", "text_completion demo", "text_completion demo"]
    assert {plain(span.attributes)["user.id"] for span in whole} == {"desk"}


def test_a_connection_that_is_lost_frees_no_place_and_the_end_of_the_server_is_told(
    engine: EngineProcess, tmp_path: Path
) -> None:
    submission = {"prompt": "Once", "params": {"max_tokens": 900, "ignore_eos": True, "n": 3}, "age": 0, "label": ""}
    asks = {"do": "submit", "submissions": [submission]}
    with at_desk(engine, tmp_path) as desk:
        with raw(desk.address, desk.keys["desk"], control=True) as lost:
            lost.send(json.dumps(asks | {"call": 1}))
            assert said(lost)["say"] == "told"
            lost.socket.close()
        with raw(desk.address, desk.keys["desk"], control=True) as back:
            back.send(json.dumps(asks | {"call": 2}))
            assert "3 answers are open, and a key takes 4" in said(back)["why"]
        until(lambda: len(desk.rows) == 1)
        assert desk.rows[0]["status"] == 429
        assert engine.trace.open, "it goes on"
    first, _ = desk.rows
    assert (first["status"], first["error"], first["finish_reasons"]) == (503, "unavailable", ["abort"] * 3)
    assert first["output_tokens"] > 0
    until(lambda: not engine.trace.open)
