"""The session over the real engine process and the demo model."""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from pytestqt.qtbot import QtBot

import resources
from app import storage
from app.session.loading.progress import LoadStatus
from app.session.session import Session, SessionState
from engine import EngineConfig, ModelSpec, SamplingParams, Submission, load_trace
from engine.trace import FinishReason, ModelCard, RequestView

pytestmark = pytest.mark.slow

WAIT = 30_000
SHORT = SamplingParams(max_tokens=8, temperature=0)
LONG = SamplingParams(max_tokens=400, temperature=0.8, ignore_eos=True)


def chat(text: str, params: SamplingParams = SHORT) -> Submission:
    return Submission([{"role": "user", "content": text}], params)


def views(session: Session) -> list[RequestView]:
    assert session.trace is not None
    return list(session.trace.requests.values())


def send(qtbot: QtBot, session: Session, *submissions: Submission) -> list[int]:
    task = session.send(submissions)
    qtbot.waitUntil(task.done, timeout=WAIT)
    return task.result()


def wait_for_the_end(qtbot: QtBot, session: Session, requests: int = 1) -> None:
    def over() -> bool:
        return len(views(session)) >= requests and all(v.ended is not None for v in views(session))

    qtbot.waitUntil(over, timeout=WAIT)


def wait_for_first_tokens(qtbot: QtBot, session: Session, requests: int) -> None:
    qtbot.waitUntil(lambda: sum(bool(v.tokens) for v in views(session)) >= requests, timeout=WAIT)


def kill_engine(session: Session) -> None:
    os.kill(session.engine_pid or 0, signal.SIGKILL)


def test_eight_prompts_become_eight_texts_and_a_file(
    qtbot: QtBot, loaded: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.session.run_file.LONG", 20)
    ids = send(qtbot, loaded, *(chat(f"Tell me a story about a fox and {n} owls.") for n in range(8)))
    wait_for_the_end(qtbot, loaded, 8)
    assert [v.request for v in views(loaded)] == ids
    assert all(v.text and v.reason is FinishReason.LENGTH for v in views(loaded))
    path = loaded.run_file
    assert path is not None
    assert path.parent == storage.runs()
    with qtbot.waitSignal(loaded.file_written, timeout=WAIT) as written:
        closing = loaded.start(loaded.close_file())
    qtbot.waitUntil(closing.done, timeout=WAIT)
    assert written.args == [path]
    assert [v.text for v in load_trace(path).requests.values()] == [v.text for v in views(loaded)]


def test_a_load_tells_how_far_it_is(qtbot: QtBot, session: Session) -> None:
    told: list[LoadStatus] = []
    session.load_progressed.connect(told.append)
    with qtbot.waitSignal(session.model_loaded, timeout=WAIT):
        session.start(session.load(ModelSpec("demo")))
    assert told
    assert all(status.stage and status.elapsed >= 0 for status in told)


def test_a_cancelled_load_leaves_an_empty_session(qtbot: QtBot, session: Session) -> None:
    with qtbot.waitSignal(session.load_failed, timeout=WAIT) as failed:
        session.start(session.load(ModelSpec("demo")))
        qtbot.waitUntil(lambda: session.state is SessionState.LOADING)
        session.cancel_load()
    assert failed.args == [""]
    assert session.state is SessionState.EMPTY
    assert session.card is None


def test_a_load_that_fails_says_why_and_the_next_one_works(qtbot: QtBot, session: Session, tmp_path: Path) -> None:
    with qtbot.waitSignal(session.load_failed, timeout=WAIT) as failed:
        session.start(session.load(ModelSpec(str(tmp_path / "nothing"))))
    assert "no folder" in failed.args[0]
    assert session.state is SessionState.EMPTY
    with qtbot.waitSignal(session.model_loaded, timeout=WAIT):
        session.start(session.load(ModelSpec("demo")))


def test_a_load_that_fails_leaves_the_running_requests_untouched(qtbot: QtBot, loaded: Session, tmp_path: Path) -> None:
    card, config = loaded.card, loaded.config
    loaded.requests = SimpleNamespace(running=True)
    send(qtbot, loaded, *(chat("a fox", LONG) for _ in range(4)))
    (tmp_path / "config.json").write_text('{"model_type": "bloom"}', encoding="utf-8")
    for source in (str(tmp_path / "nothing"), str(tmp_path), "nobody"):
        with qtbot.waitSignal(loaded.load_failed, timeout=WAIT) as failed:
            loaded.start(loaded.load(ModelSpec(source), EngineConfig(max_running=3)))
        assert failed.args[0]
        assert loaded.state is SessionState.READY
    loaded.requests = None
    assert (loaded.card, loaded.config) == (card, config)
    wait_for_the_end(qtbot, loaded, 4)
    assert {v.reason for v in views(loaded)} == {FinishReason.LENGTH}


def little_memory(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """As if the machine had so many bytes left."""
    found = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: found._replace(available=free))


def test_the_model_there_is_stays_until_the_next_one_is_ready(qtbot: QtBot, doomed: Session) -> None:
    before, rooms = doomed.engine_pid, []
    doomed.room_made.connect(rooms.append)
    task = doomed.start(doomed.load(ModelSpec("demo-draft")))
    seen = set()
    doomed.load_progressed.connect(lambda _: seen.add(doomed.engine_pid))
    qtbot.waitUntil(task.done, timeout=WAIT)
    assert task.result()
    assert seen == {before}
    assert rooms == []
    assert doomed.card is not None
    assert doomed.card.source == "demo-draft"
    assert not psutil.pid_exists(before or 0)


def test_a_model_that_is_cancelled_leaves_the_one_there_is(qtbot: QtBot, doomed: Session) -> None:
    before = doomed.engine_pid
    doomed.load_progressed.connect(lambda _: doomed.cancel_load())
    with qtbot.waitSignal(doomed.load_failed, timeout=WAIT) as failed:
        doomed.start(doomed.load(ModelSpec("demo-draft")))
    assert failed.args == [""]
    assert (doomed.engine_pid, doomed.state, doomed.spec) == (before, SessionState.READY, ModelSpec("demo"))


def test_without_room_for_both_the_window_says_so_and_the_old_model_comes_back(
    qtbot: QtBot, doomed: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little_memory(monkeypatch, 1 << 20)
    broken = tmp_path / "broken"
    shutil.copytree(resources.path("models/stories-5m"), broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b"up_proj", b"up_pr0j"))
    before = doomed.engine_pid
    said: list[tuple[str, int | None]] = []
    doomed.room_made.connect(lambda words: said.append((words, doomed.engine_pid)))
    with qtbot.waitSignal(doomed.load_failed, timeout=WAIT) as failed:
        doomed.start(doomed.load(ModelSpec(str(broken))))
    assert "up_pr" in failed.args[0]
    [(words, pid)] = said
    assert pid == before
    assert "makes room" in words
    assert "1 MB are free" in words
    assert (doomed.state, doomed.spec) == (SessionState.READY, ModelSpec("demo"))
    assert doomed.engine_pid not in (None, before)
    send(qtbot, doomed, chat("a fox"))
    wait_for_the_end(qtbot, doomed)


def test_without_room_for_both_nothing_is_unloaded_while_requests_run(
    qtbot: QtBot, doomed: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    little_memory(monkeypatch, 1 << 20)
    before = doomed.engine_pid
    doomed.requests = SimpleNamespace(running=True)
    with qtbot.waitSignal(doomed.load_failed, timeout=WAIT) as failed:
        doomed.start(doomed.load(ModelSpec("demo-draft")))
    assert "stop the requests" in failed.args[0]
    assert (doomed.engine_pid, doomed.state) == (before, SessionState.READY)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if whatever is loaded were on a GPU."""

    def card(session: Session) -> ModelCard | None:
        engine = session._engine
        return replace(engine.card, device="cuda:0") if engine is not None else None

    monkeypatch.setattr(Session, "card", property(card))


def test_a_model_on_a_gpu_makes_room_for_any_that_may_go_there(qtbot: QtBot, doomed: Session, on_gpu: None) -> None:
    """Though there were room beside it: its pool would leave the next one none. Not while requests run on it."""
    before, rooms, seen = doomed.engine_pid, [], []
    doomed.room_made.connect(rooms.append)
    doomed.load_progressed.connect(lambda _: seen.append(doomed.engine_pid))
    doomed.requests = SimpleNamespace(running=True)
    with qtbot.waitSignal(doomed.load_failed, timeout=WAIT) as failed:
        doomed.start(doomed.load(ModelSpec("someone/something")))
    assert "needs the GPU that demo stories is on; stop the requests" in failed.args[0]
    assert (doomed.engine_pid, doomed.state, rooms) == (before, SessionState.READY, [])
    doomed.requests = None
    for spec in (ModelSpec("demo-draft"), ModelSpec("demo", device="cpu")):
        before = doomed.engine_pid
        seen.clear()
        task = doomed.start(doomed.load(spec))
        qtbot.waitUntil(task.done, timeout=WAIT)
        assert task.result()
        assert set(seen) == {before if spec.device == "cpu" else None}
    (words,) = rooms
    assert "needs the GPU that demo stories is on: demo stories makes room" in words


def test_submitting_without_a_model_says_so(qtbot: QtBot, session: Session) -> None:
    with qtbot.waitSignal(session.submit_failed) as failed:
        session.send([chat("hello")])
    assert "Load a model first" in failed.args[0]


def test_a_refused_prompt_leaves_the_others_running(qtbot: QtBot, loaded: Session) -> None:
    send(qtbot, loaded, chat("a fox", LONG))
    with qtbot.waitSignal(loaded.submit_failed, timeout=WAIT) as failed:
        loaded.send([Submission("fox " * 5000, SHORT)])
    assert "token" in failed.args[0]
    qtbot.waitUntil(lambda: len(views(loaded)) == 1, timeout=WAIT)
    wait_for_the_end(qtbot, loaded)
    assert views(loaded)[0].reason is FinishReason.LENGTH


def test_stopping_one_keeps_its_text_and_the_others(qtbot: QtBot, loaded: Session) -> None:
    first, second = send(qtbot, loaded, chat("a fox", LONG), chat("an owl", LONG))
    wait_for_first_tokens(qtbot, loaded, 2)
    loaded.stop([first])
    wait_for_the_end(qtbot, loaded, 2)
    reasons = {v.request: v.reason for v in views(loaded)}
    assert reasons == {first: FinishReason.CANCELLED, second: FinishReason.LENGTH}
    assert all(v.text for v in views(loaded))


def test_stopping_all_ends_all(qtbot: QtBot, loaded: Session) -> None:
    send(qtbot, loaded, *(chat("a fox", LONG) for _ in range(12)))
    loaded.stop()
    wait_for_the_end(qtbot, loaded, 12)
    assert {v.reason for v in views(loaded)} == {FinishReason.CANCELLED}


def test_another_config_begins_another_trace_and_another_file(qtbot: QtBot, loaded: Session) -> None:
    send(qtbot, loaded, chat("a fox"))
    wait_for_the_end(qtbot, loaded)
    first, file = loaded.trace, loaded.run_file
    with qtbot.waitSignal(loaded.trace_changed, timeout=WAIT):
        loaded.start(loaded.begin(EngineConfig(max_running=2, block_size=32)))
    assert loaded.trace is not first
    assert loaded.trace is not None
    assert loaded.trace.header.config.block_size == 32
    send(qtbot, loaded, chat("an owl"))
    wait_for_the_end(qtbot, loaded)
    assert loaded.run_file != file


def test_another_config_is_refused_while_requests_run(qtbot: QtBot, loaded: Session) -> None:
    send(qtbot, loaded, chat("a fox", LONG))
    with qtbot.waitSignal(loaded.config_refused, timeout=WAIT):
        loaded.start(loaded.begin(EngineConfig(max_running=2)))
    assert loaded.config.max_running == 8
    loaded.stop()
    wait_for_the_end(qtbot, loaded)


def test_a_follow_up_sends_the_whole_conversation(qtbot: QtBot, loaded: Session) -> None:
    send(qtbot, loaded, chat("Tell me a story about a fox."))
    wait_for_the_end(qtbot, loaded)
    (before,) = views(loaded)
    task = loaded.continue_chat(before, "And then?")
    qtbot.waitUntil(task.done, timeout=WAIT)
    wait_for_the_end(qtbot, loaded, 2)
    after = views(loaded)[-1]
    assert [m["role"] for m in after.messages] == ["user", "assistant", "user"]
    assert after.messages[1]["content"] == before.text
    assert after.messages[2]["content"] == "And then?"


def test_regenerating_asks_the_same_with_another_seed(qtbot: QtBot, loaded: Session) -> None:
    send(qtbot, loaded, Submission("Once upon a time", SHORT.with_(temperature=0.8, seed=1)))
    wait_for_the_end(qtbot, loaded)
    (before,) = views(loaded)
    task = loaded.regenerate(before)
    qtbot.waitUntil(task.done, timeout=WAIT)
    wait_for_the_end(qtbot, loaded, 2)
    after = views(loaded)[-1]
    assert after.prompt_ids.tolist() == before.prompt_ids.tolist()
    assert after.params.seed != before.params.seed


@pytest.mark.parametrize("running", [0, 6])
def test_a_killed_engine_is_told_and_texts_are_kept(qtbot: QtBot, doomed: Session, running: int) -> None:
    send(qtbot, doomed, chat("a fox"))
    wait_for_the_end(qtbot, doomed)
    if running:
        send(qtbot, doomed, *(chat("an owl", LONG) for _ in range(running)))
        wait_for_first_tokens(qtbot, doomed, 1 + running)
    with qtbot.waitSignal(doomed.engine_died, timeout=WAIT) as died:
        kill_engine(doomed)
    assert "SIGKILL" in died.args[0]
    assert doomed.state is SessionState.DIED
    wait_for_the_end(qtbot, doomed, 1 + running)
    assert [v.reason for v in views(doomed)] == [FinishReason.LENGTH] + [FinishReason.ERROR] * running
    assert all(v.text for v in views(doomed))
    if running:
        with qtbot.waitSignal(doomed.model_loaded, timeout=WAIT):
            doomed.start(doomed.restart())
        send(qtbot, doomed, chat("a fox"))
        wait_for_the_end(qtbot, doomed)


def test_a_dead_engine_stays_dead_when_another_model_cannot_be_loaded(
    qtbot: QtBot, doomed: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little_memory(monkeypatch, 1 << 20)
    with qtbot.waitSignal(doomed.engine_died, timeout=WAIT):
        kill_engine(doomed)
    rooms: list[str] = []
    doomed.room_made.connect(rooms.append)
    with qtbot.waitSignals([doomed.engine_died, doomed.load_failed], timeout=WAIT):
        doomed.start(doomed.load(ModelSpec(str(tmp_path / "nothing"))))
    assert (doomed.state, doomed.spec) == (SessionState.DIED, ModelSpec("demo"))
    restarting = doomed.start(doomed.restart())
    qtbot.waitUntil(restarting.done, timeout=WAIT)
    assert doomed.ready
    assert rooms == [], "what is dead holds nothing"


def test_an_engine_that_dies_while_another_model_loads_is_told(qtbot: QtBot, doomed: Session) -> None:
    doomed.load_progressed.connect(lambda _: (kill_engine(doomed), doomed.cancel_load()))
    with qtbot.waitSignals([doomed.engine_died, doomed.load_failed], timeout=WAIT):
        doomed.start(doomed.load(ModelSpec("demo-draft")))
    assert doomed.state is SessionState.DIED


def test_requests_that_still_run_when_the_next_model_is_ready_end_with_a_word(qtbot: QtBot, doomed: Session) -> None:
    send(qtbot, doomed, *(chat("a fox", LONG) for _ in range(8)))
    wait_for_first_tokens(qtbot, doomed, 8)
    before = doomed.trace
    assert before is not None
    doomed.requests = SimpleNamespace(running=True)  # those are short, and may be over before the model is there
    with qtbot.waitSignal(doomed.notice_raised, timeout=WAIT) as told:
        doomed.start(doomed.load(ModelSpec("demo-draft")))
    assert "have ended" in told.args[0]
    assert doomed.ready
    assert all(view.text and view.ended is not None for view in before.requests.values())


def test_closing_while_requests_run_keeps_what_was_said(qtbot: QtBot, doomed: Session) -> None:
    send(qtbot, doomed, *(chat("a fox", LONG) for _ in range(8)))
    wait_for_first_tokens(qtbot, doomed, 8)
    path, trace = doomed.run_file, doomed.trace
    assert path is not None
    assert trace is not None
    closing = doomed.start(doomed.close())
    qtbot.waitUntil(closing.done, timeout=WAIT)
    texts = [v.text for v in load_trace(path).requests.values()]
    assert texts == [v.text for v in trace.requests.values()]
    assert all(texts)


def test_closing_while_loading_leaves_nothing(qtbot: QtBot, session: Session) -> None:
    session.start(session.load(ModelSpec("demo")))
    qtbot.waitUntil(lambda: session.state is SessionState.LOADING)
