"""Nobody waits for who is slow; who is late is told enough; who comes back to another server is told what was lost."""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine import EngineProcess
from engine.remote.frames import STATE, unpack
from engine.serving import ServingSettings
from engine.serving import server as server_module
from engine.serving.watch import hub, watcher
from engine.trace import FinishReason, Notice
from tests.commands import Command
from tests.engine.serving.conftest import serving
from tests.engine.serving.wires import (
    GREEDY,
    begins,
    frames,
    heard,
    heard_until,
    raw,
    size,
    take,
    tells_how_things_stand,
    watching,
)
from tests.waiting import until


def test_who_takes_nothing_is_sent_no_more_than_the_window_and_the_engine_does_not_wait(
    engine: EngineProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "WINDOW", 4096)
    monkeypatch.setattr(hub, "HISTORY", 32)
    monkeypatch.setattr(server_module, "KEPT", 64)
    monkeypatch.setattr(server_module, "GLANCE", 0.1)
    with serving(engine, ServingSettings(port=0)) as server, raw(server.address) as slow:
        told = heard_until(slow, tells_how_things_stand)
        take(slow, told)
        stream = engine.submit("Once", GREEDY.with_(max_tokens=400))
        stream.result(30)
        until(lambda: engine.trace.records.first > len(engine.trace.records) - 100)
        first = heard_until(slow, lambda said: size(said) >= 4096)
        first += heard(slow, 0.3)
        assert size(first) < 4096 + 40_000, "the window, and the frame that filled it"
        take(slow, told + first)
        later = heard_until(slow, lambda said: begins(said))
        said = told + first + later
        known = sum(len(unpack(frame)[1]) for frame in frames(said) if unpack(frame)[0] != STATE)
        began, *again = begins(said)  # on a slow machine it is behind before its window is full, too
        lost = sum(each["lost"] for each in again)
        assert lost == again[-1]["position"] - (began["position"] + known) > 0, "what was let go is told as it stands"
        assert known


def test_who_joins_late_is_told_how_things_stand_and_no_more(
    engine: EngineProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "HISTORY", 64)
    monkeypatch.setattr(server_module, "GLANCE", 0.02)
    with serving(engine, ServingSettings(port=0)) as server:
        early = len(engine.trace.records)
        stream = engine.submit("Once", GREEDY.with_(max_tokens=900))
        until(lambda: len(engine.trace.records) - early > 200)
        time.sleep(0.2)  # looks of the server's
        with watching(server.address) as remote:
            at_once = len(remote.trace.records)
            assert at_once < 64 + 2 * 400, "of some thousand"
            notices = [r.text for r in remote.trace.records if isinstance(r, Notice)]
            assert any("shown as they stood" in text for text in notices)
            own = stream.result(30)
            until(lambda: not remote.trace.open)
            (view,) = [v for v in remote.trace.requests.values() if v.request == stream.request]
            assert (view.text, view.tokens.tolist()) == (own.text, list(own.token_ids))


@contextmanager
def served(port: int, folder: Path) -> Iterator[Command]:
    """A server in a process of its own, once it is ready."""
    quick = ["--model", "demo-draft", "--threads", "1", "--max-running", "8", "--kv-memory", "8M"]
    with Command(["app", "serve", "--port", str(port), "--keys", str(folder / "none"), *quick]) as server:
        assert server.stdout.readline().startswith("serving demo-draft at ")
        yield server


@pytest.mark.timeout(240)
def test_a_server_that_is_killed_and_started_again_is_told_with_what_was_lost(
    engine: EngineProcess, tmp_path: Path
) -> None:
    """One in a process of its own; the next one here."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with served(port, tmp_path) as first, watching(f"http://127.0.0.1:{port}") as remote:
        stream = remote.submit("Once", GREEDY.with_(max_tokens=900))
        until(lambda: len(stream.deltas) > 5)
        before = remote.trace
        first.send_signal(signal.SIGKILL)
        until(lambda: not remote.status.connected)
        assert remote.alive
        assert not stream.done, "it may come back"
        with pytest.raises(RuntimeError, match="cannot be reached now"):
            remote.submit("Once")
        first.wait()
        with serving(engine, ServingSettings(port=port)):
            until(lambda: remote.trace is not before and remote.status.connected)
            ended = stream.result(60)
            assert ended.finish_reason is FinishReason.ERROR
            assert ended.text, "what had come is kept"
            said = [record for record in before.records if isinstance(record, Notice)][-1]
            assert said.level == "error"
            assert "was restarted: the 1 request that ran there was lost" in said.text
            assert before.complete
            until(lambda: remote.trace.records)
            assert remote.submit("Once", GREEDY).result(30).finish_reason is FinishReason.LENGTH
