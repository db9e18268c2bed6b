"""A window at another desk sees the server's own trace, also over a bad connection, and texts only if it may."""

import contextlib
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import OpenAI
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from engine import EngineConfig, EngineProcess, InvalidInput, SamplingParams, Trace
from engine.config import LiveBudget
from engine.remote import RemoteEngine, ServerAddress
from engine.remote.frames import PROTOCOL, STATE, pack, unpack
from engine.serving import KeyFile, Server, ServingSettings, made_key
from engine.serving.access import keys as access_keys
from engine.serving.watch import watcher
from engine.serving.watch.texts import without_texts
from engine.trace import Ended, FinishReason, Notice, Submitted
from engine.trace.records import VERSION, encode
from engine.trace.records.check import RecordCheck
from tests.engine.serving.conftest import serving
from tests.engine.serving.wires import GREEDY, Wire, heard, raw, said, taken_until, tells_how_things_stand, watching
from tests.waiting import until


def same_trace(engine: EngineProcess, remote: RemoteEngine, records: int) -> None:
    """So many of the server's, the newest, are there byte for byte and in their order."""
    until(lambda: not engine.trace.open)
    end = len(engine.trace.records)
    theirs = list(map(encode, engine.trace.records[end - records : end]))
    until(lambda: theirs[-1] in map(encode, remote.trace.records[-200:]))
    ours = list(map(encode, remote.trace.records))
    at = ours.index(theirs[0])
    assert ours[at : at + records] == theirs


def test_the_trace_is_the_servers_own(server: Server, engine: EngineProcess, client: OpenAI) -> None:
    before = len(engine.trace.records)
    with watching(server.address) as remote:
        stream = remote.submit("Once upon a time", GREEDY)
        answer = client.completions.create(model="demo", prompt="Once", max_tokens=20, temperature=0)
        own = engine.submit("Once upon a time", GREEDY).result(30)
        got = stream.result(30)
        assert (got.text, got.token_ids, got.logprobs) == (own.text, own.token_ids, own.logprobs)
        assert 0 < got.metrics.ttft < 10
        same_trace(engine, remote, len(engine.trace.records) - before)
        assert encode(remote.trace.header) == encode(engine.trace.header)
        assert (remote.card, remote.config) == (engine.card, engine.config)
        assert any(view.text == answer.choices[0].text for view in remote.trace.requests.values())
        assert remote.encode("Once") == engine.encode("Once")
        assert remote.decode([5, 6]) == engine.decode([5, 6])
        assert remote.pieces([5, 6]) == engine.pieces([5, 6])
        with pytest.raises(InvalidInput, match=r"max_running=9: .*prepared for at most 8"):
            remote.steer(max_running=9)
        assert remote.steer(max_running=4) == engine.budget == LiveBudget(512, 4)
        assert remote.steer(max_running=8).max_running == 8
        with pytest.raises(InvalidInput, match="target_itl='soon'"):
            remote.steer(target_itl="soon")  # type: ignore[typeddict-item]
        with pytest.raises(InvalidInput, match="prompt"):
            remote.submit([7_000_000], GREEDY)
        with pytest.raises(InvalidInput, match="set where it is started"):
            remote.begin(EngineConfig())
        long = remote.submit("Once", GREEDY.with_(max_tokens=800))
        remote.cancel()
        assert long.result(30).finish_reason is FinishReason.CANCELLED
    assert remote.trace.complete
    assert engine.alive


def test_a_connection_that_is_cut_comes_back_and_goes_on_where_it_was(server: Server, engine: EngineProcess) -> None:
    wire = Wire(server.address)
    try:
        with watching(wire.url) as remote:
            trace, before = remote.trace, len(engine.trace.records)
            streams = [remote.submit("Once", GREEDY.with_(max_tokens=300)) for _ in range(3)]
            for cut in range(1, 4):
                until(lambda cut=cut: len(streams[0].deltas) > 30 * cut)
                until(lambda: remote.status.connected)
                wire.cut()
                until(lambda: not remote.status.connected)
            texts = {stream.result(30).text for stream in streams}
            own = engine.submit("Once", GREEDY.with_(max_tokens=300)).result(30)
            assert texts == {own.text}
            same_trace(engine, remote, len(engine.trace.records) - before)
            assert remote.trace is trace
            assert not remote.status.observes, "control waited for it"
    finally:
        wire.close()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By name, and in `file` where they are kept."""
    file = KeyFile(tmp_path_factory.mktemp("keys") / "keys.json")
    made = {name: made_key(name) for name in ("boss", "chief", "ann", "gone")}
    for _, kept in made.values():
        file.add(kept)
    return {name: told for name, (told, _) in made.items()} | {"file": str(file.path)}


@pytest.fixture(scope="module")
def closed(engine: EngineProcess, keys: dict[str, str]) -> Iterator[Server]:
    """Asks for a key; `boss` may have control."""
    settings = ServingSettings(port=0, keys=Path(keys["file"]), controllers=("boss", "chief"))
    with serving(engine, settings) as server:
        yield server


def inflated(frames: list[str | bytes]) -> bytes:
    return b"".join(zlib.decompress(frame[8:]) for frame in frames if isinstance(frame, bytes))


def ended_in(said: list[str | bytes]) -> set[int]:
    records = [record for frame in said if isinstance(frame, bytes) for record in unpack(frame)[1]]
    return {record.request for record in records if isinstance(record, Ended)}


def test_who_may_not_read_is_sent_no_text_in_any_form(
    engine: EngineProcess, closed: Server, keys: dict[str, str]
) -> None:
    words = "The xylophone of Zanzibar"
    params = SamplingParams(
        max_tokens=12, temperature=0, stop=("quagmire",), logprobs=2, bad_words=("obelisk",), ignore_eos=True, n=2
    )
    ann, boss = (raw(closed.address, keys[name], control=True) for name in ("ann", "boss"))
    with ann as watches, boss as reads:  # what ends before they are told how things stand is not told
        blind, whole = list[str | bytes](), list[str | bytes]()
        for each, said_to in ((watches, blind), (reads, whole)):
            taken_until(each, tells_how_things_stand, said_to)
        one = engine.submit([{"role": "user", "content": words}], params, "ann")
        two = engine.submit("Pick", SamplingParams(max_tokens=12, regex="(teapot|samovar)"))
        three = engine.submit("Once", SamplingParams(max_tokens=5, temperature=0, prompt_logprobs=2))
        assert all(stream.result(30).text for stream in (one, two, three))
        asked = {stream.request for stream in (one, two, three)}
        for each, said_to in ((watches, blind), (reads, whole)):
            taken_until(each, lambda said: asked <= ended_in(said), said_to)
        watches.send(json.dumps({"do": "submit", "call": 1, "submissions": [], "more": False}))
        assert "may watch, not send" in said(watches)["why"]
    welcome = json.loads(blind[0])
    assert (welcome["texts"], welcome["caller"]) == (False, "ann")
    bare, full = inflated(blind), inflated(whole)
    for word in (words, "quagmire", "obelisk", "samovar"):
        assert word.encode() in full
        assert word.encode() not in bare
    assert b'"label":"ann"' in bare, "whose it is may be known"
    for frame in blind:
        for record in unpack(frame)[1] if isinstance(frame, bytes) else ():
            for name in ("token", "alt_token", "token_ids", "draft_token", "rather_token", "beam_token"):
                assert not np.any(getattr(record, name, 0)), name
            assert not getattr(record, "text", "") or isinstance(record, Notice)
    failed = without_texts(Ended(1.0, 3, FinishReason.ERROR, error="regex='(teapot': it has no end"))
    assert isinstance(failed, Ended)
    assert failed.error
    assert "teapot" not in failed.error


def test_one_has_control_and_the_others_are_told_why_they_have_not(closed: Server, keys: dict[str, str]) -> None:
    with watching(closed.address, keys["ann"]) as ann, watching(closed.address, keys["boss"]) as boss:
        assert "the key 'ann' may watch, not send" in ann.status.observes
        assert (boss.status.observes, boss.status.texts, boss.status.caller) == ("", True, "boss")
        for asks in (lambda: ann.submit("Once"), lambda: ann.steer(max_running=2)):
            with pytest.raises(InvalidInput, match="may watch, not send"):
                asks()
        with watching(closed.address, keys["boss"]) as second:
            assert "the window of 'boss' has control" in second.status.observes
            stream = boss.submit("Once", GREEDY.with_(max_tokens=300))
            second.cancel()
            second._link.say({"do": "cancel", "requests": None})
            assert second.encode("Once") == boss.encode("Once")
            assert stream.result(30).finish_reason is FinishReason.LENGTH
            until(lambda: second.status.holder == "boss")
            boss.give_control_back()
            assert (boss.status.free, boss.status.holder) == (True, None)
            with pytest.raises(InvalidInput, match="nobody has control of this server; this window can take it"):
                boss.submit("Once")
            until(lambda: second.status.free)
            with pytest.raises(InvalidInput, match="may watch, not send"):
                ann.take_control()
            second.take_control()
            with pytest.raises(InvalidInput, match="the window of 'boss' has control"):
                boss.take_control()
            assert second.submit("Once", GREEDY).result(30).text
    with watching(closed.address, keys["boss"]) as again:
        assert not again.status.observes, "who said goodbye gave it back"


def test_who_takes_control_reads_what_runs_from_its_beginning(
    engine: EngineProcess, closed: Server, keys: dict[str, str]
) -> None:
    with watching(closed.address, keys["boss"]) as boss, watching(closed.address, keys["boss"]) as second:
        before, stream = second.trace, engine.submit("Once upon a time", GREEDY.with_(max_tokens=400))
        until(lambda: any(len(view.tokens) > 5 for view in before.requests.values()))
        assert not any(view.text or view.prompt for view in before.requests.values())
        boss.give_control_back()
        until(lambda: second.status.free)
        second.take_control()
        assert second.trace is not before
        assert before.complete
        own = stream.result(30)
        trace = second.trace
        until(lambda: stream.request in trace.requests and trace.requests[stream.request].ended)
        view = trace.requests[stream.request]
        assert (view.prompt, view.text, view.tokens.tolist()) == ("Once upon a time", own.text, list(own.token_ids))


def test_control_is_for_the_window_and_the_key_that_took_it(closed: Server, keys: dict[str, str]) -> None:
    """Whoever learns a window's name has not its key."""
    with raw(closed.address, keys["boss"], control=True), raw(closed.address, keys["chief"], control=True) as other:
        welcome = json.loads(other.recv(5))
        assert (welcome["observes"], welcome["holder"]) == ("the window of 'boss' has control of this server", "boss")


def test_a_revoked_key_sends_nothing_more_though_its_window_takes_nothing(
    engine: EngineProcess, closed: Server, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told, kept = made_key("boss2")
    monkeypatch.setattr(watcher, "PULSE", 60.0)  # what looks at the key beside what is said
    file = KeyFile(Path(keys["file"]))
    file.add(kept)
    time.sleep(access_keys.GLANCE)
    with raw(closed.address, told) as connection:
        heard(connection, 0.2)
        file.revoke("boss2")
        time.sleep(access_keys.GLANCE)
        connection.send(json.dumps({"do": "encode", "call": 1, "given": "Once"}))
        with pytest.raises(ConnectionClosed, match="no longer known"):
            heard(connection, 10)


def test_a_key_that_is_revoked_ends_the_watching(closed: Server, keys: dict[str, str]) -> None:
    with watching(closed.address, keys["gone"]) as remote:
        KeyFile(Path(keys["file"])).revoke("gone")
        until(lambda: not remote.alive)
        assert "no longer known" in remote.error
        with pytest.raises(InvalidInput, match="no longer known"):
            remote.encode("Once")


@pytest.mark.parametrize(
    ("key", "told"), [("", "a key is needed"), ("bs-wrong-key-of-somebody", "this key is not known")]
)
def test_without_a_key_that_is_known_nobody_watches(closed: Server, key: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        RemoteEngine(ServerAddress(closed.address, key))
    assert "wrong" not in str(refused.value)


def test_a_page_in_a_browser_does_not_watch(server: Server) -> None:
    address = f"ws{server.address.removeprefix('http')}/v1/watch"
    with pytest.raises(InvalidStatus, match="403"):
        connect(address, origin="https://evil.example", proxy=None)  # type: ignore[arg-type]
    port = int(server.address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as there, pytest.raises(InvalidStatus, match="400"):
        connect("ws://evil.example/v1/watch", sock=there, proxy=None)


@pytest.mark.parametrize(
    ("hello", "told"),
    [
        ({"protocol": PROTOCOL + 1}, "update the server"),
        ({"records": VERSION - 1}, "update this window"),
        ({"client": "short"}, "no window of Batchscope"),
        ({"position": -1}, "no window of Batchscope"),
        ({"run": 7}, "no window of Batchscope"),
    ],
)
def test_another_version_is_told_what_to_update(server: Server, hello: dict[str, Any], told: str) -> None:
    with raw(server.address, **hello) as connection:
        assert told in json.loads(connection.recv(5))["why"]
        with pytest.raises(ConnectionClosed):
            connection.recv(5)


def test_what_is_no_submission_is_refused_by_name(server: Server, engine: EngineProcess) -> None:
    fine = {"prompt": "Once", "params": {"max_tokens": 2}, "age": 0.5, "label": "me"}
    wrong: list[tuple[Any, str]] = [
        (None, "submission"),
        ({"prompt": "Once"}, "submission"),
        (fine | {"more": 1}, "submission"),
        (fine | {"prompt": 7}, "prompt"),
        (fine | {"prompt": [1.5]}, "prompt"),
        (fine | {"prompt": [{"role": "user"}]}, "prompt"),
        (fine | {"prompt": "\ud800"}, "prompt"),
        (fine | {"params": []}, "params"),
        (fine | {"params": {"max_tokens": "2"}}, "max_tokens"),
        (fine | {"params": {"__class__": 1}}, "params"),
        (fine | {"params": {"stop": [7]}}, "stop"),
        (fine | {"params": {"logit_bias": [[1]]}}, ""),
        (fine | {"params": {"n": 65}}, "n="),
        (fine | {"age": -1}, "age"),
        (fine | {"age": 1e9}, "age"),
        (fine | {"label": "x" * 201}, "label"),
    ]
    with raw(server.address, control=True) as connection:
        before = len(engine.trace.records)
        for call, (given, _) in enumerate(wrong):
            connection.send(json.dumps({"do": "submit", "call": call, "submissions": [fine, given]}))
        for verb in ("begin", "close", "__init__"):
            connection.send(json.dumps({"do": verb, "call": 99}))
        connection.send(json.dumps({"do": "steer", "call": 99, "max_running": "all"}))
        connection.send(json.dumps({"do": "pieces", "call": 99, "given": [1.5]}))
        replies = [said(connection) for _ in range(len(wrong) + 5)]
        assert {reply["say"] for reply in replies} == {"refused"}
        for reply in replies[: len(wrong)]:
            assert wrong[reply["call"]][1] in reply["why"], reply
        assert not [r for r in engine.trace.records[before:] if isinstance(r, Submitted)], "not half of them"
        connection.send(json.dumps({"do": "submit", "call": 100, "submissions": [fine]}))
        assert said(connection)["say"] == "told"
    until(lambda: not engine.trace.open)


def test_a_frame_is_read_whole_or_not_at_all(engine: EngineProcess) -> None:
    records = engine.trace.since(engine.trace.records.first)[-200:]
    frame, count = pack(7, records, 20_000)
    assert 0 < count < 200
    assert list(map(encode, unpack(frame)[1])) == list(map(encode, records[:count]))
    assert pack(0, records, 1)[1] == 1
    draw = np.random.default_rng(0)
    body = zlib.decompress(frame[8:])
    for _ in range(200):
        mutated = bytearray(body)
        for place in draw.integers(0, len(body), 3):
            mutated[place] = draw.integers(256)
        cut = bytes(mutated[: draw.integers(1, len(body))])
        for broken in (
            frame[:8] + zlib.compress(bytes(mutated), 1),
            frame[:8] + zlib.compress(cut),
            frame[: len(cut) % 900],
        ):
            try:
                _, read = unpack(broken)
                check = RecordCheck()
                for record in (engine.trace.header, *read):
                    check(record)
            except ValueError:
                continue
    with pytest.raises(ValueError, match="larger than may be"):
        unpack(frame[:8] + zlib.compress(bytes(65 << 20)))


SAYS = {"protocol": PROTOCOL, "records": VERSION, "model": "demo", "observes": "", "texts": True, "caller": ""}
SAYS |= {"barred": False, "holder": "", "replicas": 0}


def test_a_server_that_says_what_no_server_says_is_left(engine: EngineProcess) -> None:
    header = engine.trace.header
    second = pack(STATE, [header, header], 1 << 20)[0]
    begin = json.dumps({"say": "begin", "run": "r", "position": 0, "state": 0, "lost": 0})
    said: list[tuple[list[str | bytes], str]] = [
        (["{}"], "cannot be read"),
        ([json.dumps({"say": "welcome"} | SAYS | {"protocol": 99})], "another version"),
        ([json.dumps({"say": "welcome"} | SAYS | {"holder": 7})], "cannot be read"),
        ([begin, b"\x80\x04pickled"], "a frame that"),
        ([begin, second], "what no run can have"),
        ([begin, pack(5, [header], 1)[0]], "out of order"),
        (["[" * 100_000], "Recursion"),
    ]
    turn = iter(said)

    def answer(connection: ServerConnection) -> None:
        connection.recv(5)
        for message in next(turn)[0]:
            connection.send(message)
        connection.recv(5)

    with serve(lambda c: _quietly(answer, c), "127.0.0.1", 0) as strange:
        thread = threading.Thread(target=strange.serve_forever)
        thread.start()
        try:
            for _, told in said:
                with pytest.raises(InvalidInput, match=told):
                    RemoteEngine(ServerAddress(f"http://127.0.0.1:{strange.socket.getsockname()[1]}"))
        finally:
            strange.shutdown()
            thread.join()


def _quietly(work: Callable[[ServerConnection], None], connection: ServerConnection) -> None:
    with contextlib.suppress(ConnectionClosed, TimeoutError):
        work(connection)


@pytest.mark.parametrize(
    "url", ["", "ftp://a", "http://", "http://a:b", "http://a/other", "http://u:p@a", "http://a?k=1"]
)
def test_what_is_no_address_is_told_so(url: str) -> None:
    with pytest.raises(InvalidInput, match="give its address") as told:
        ServerAddress(url)
    assert ":p@" not in str(told.value)


def test_an_address_is_taken_as_people_write_it() -> None:
    assert ServerAddress("127.0.0.1:8000/v1/", " k \n") == ServerAddress("http://127.0.0.1:8000", "k")
    assert ServerAddress("https://[::1]").socket == "wss://[::1]/v1/watch"
    assert "secret" not in repr(ServerAddress("http://a", "secret"))


def lost_words(trace: Trace) -> str:
    return [record.text for record in trace.records if isinstance(record, Notice)][-1]


def test_the_ends_of_requests_are_known(server: Server) -> None:
    """Of a window that leaves: its own are cancelled at the server, all are over in its trace."""
    with watching(server.address) as remote:
        stream = remote.submit("Once", GREEDY.with_(max_tokens=800))
        until(lambda: stream.deltas)
    assert stream.result(60).finish_reason is FinishReason.CANCELLED
    assert not remote.trace.open
    with watching(server.address) as remote:
        until(lambda: not remote.trace.open)
        ends = {r.reason for r in remote.trace.records if isinstance(r, Ended) and r.request == stream.request}
        assert ends <= {FinishReason.CANCELLED}
