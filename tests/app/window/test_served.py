"""The window at another desk: a server's engine is shown like one's own, with its clients' requests by their keys."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from openai import OpenAI
from pytestqt.qtbot import QtBot

from app.play.setup.model import SERVER
from app.session.server_link import control_words
from app.session.session import SessionState
from app.window.main_window import MainWindow
from engine import EngineConfig, EngineProcess, ModelSpec
from engine.remote import RemoteEngine, ServerAddress
from engine.serving import KeyFile, Server, ServingSettings, made_key

WAIT = 30_000
ONCE = "Once upon a time"
CONFIG = EngineConfig(max_running=8, token_budget=512, kv_memory=8 << 20)


class Served:
    """A server over an engine, and what its keys are."""

    def __init__(self, engine: EngineProcess, folder: Path) -> None:
        made = {name: made_key(name) for name in ("desk", "ann", "study app")}
        for _, kept in made.values():
            KeyFile(folder / "keys.json").add(kept)
        self.keys, self._engine, self._folder = {name: told for name, (told, _) in made.items()}, engine, folder
        self.start(0)

    def start(self, port: int) -> None:
        settings = ServingSettings(port=port, keys=self._folder / "keys.json", controllers=("desk",))
        self.server, ready = Server(settings), threading.Event()
        given = self._engine, "demo", lambda _: ready.set()
        self._thread = threading.Thread(target=self.server.run, args=given, name="serving")
        self._thread.start()
        assert ready.wait(20)

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(20)

    def ask(self, prompt: str) -> str:
        with OpenAI(base_url=f"{self.server.address}/v1", api_key=self.keys["study app"], max_retries=0) as client:
            return client.completions.create(model="demo", prompt=prompt, max_tokens=30, temperature=0).choices[0].text


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    with EngineProcess(ModelSpec("demo"), CONFIG, threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def served(engine: EngineProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(engine, tmp_path_factory.mktemp("served"))
    served.ask("Once")  # the server's threads are there before a test counts them
    yield served
    served.stop()


Connect = Callable[[str], None]


@pytest.fixture
def connect(qtbot: QtBot, window: MainWindow, served: Served) -> Connect:
    """As a person does, with the key of this name."""

    def connect(name: str) -> None:
        model = window.page.model
        model.source.set_value(SERVER)
        model.server.url.setText(served.server.address)
        model.server.key.setText(served.keys.get(name, name))
        model.load.click()
        qtbot.waitUntil(lambda: window.session.state not in (SessionState.EMPTY, SessionState.LOADING), timeout=WAIT)

    return connect


def test_a_clients_requests_appear_with_its_keys_name(
    qtbot: QtBot, window: MainWindow, served: Served, connect: Connect, engine: EngineProcess
) -> None:
    page, session = window.page, window.session
    before = session.config
    connect("desk")
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(served.ask(ONCE)))
    thread.start()
    shown = window.bridge.requests
    qtbot.waitUntil(lambda: any(v.prompt == ONCE and v.ended for v in shown.values()), timeout=WAIT)
    thread.join()
    (view,) = [view for view in shown.values() if view.prompt == ONCE]
    assert (view.label, view.text) == ("study app", answers[0])
    qtbot.waitUntil(lambda: "in control" in window.top_bar.status.text(), timeout=WAIT)
    assert served.server.address.removeprefix("http://") in window.top_bar.status.text()
    assert "This window has control" in page.model.server.note.text()
    assert session.config == CONFIG == page.batching.config()
    assert not window.recents.entries, "a server's model is none of this machine's"
    with qtbot.waitSignal(session.submitted, timeout=WAIT) as sent:
        page.composer.prompt.setPlainText("Tell me a story about a fox.")
        page.composer.send_action.trigger()
    qtbot.waitUntil(lambda: all(i in shown and shown[i].ended for i in sent.args[0]), timeout=WAIT)
    with qtbot.waitSignal(session.config_refused, timeout=WAIT) as refused:
        session.start(session.begin(EngineConfig(max_running=2)))
    assert "is set where it is started" in refused.args[0]
    control, note = page.model.server.control, page.model.server.note
    assert control.text() == "Give control back"
    control.click()
    qtbot.waitUntil(lambda: control.text() == "Take control", timeout=WAIT)
    assert "Watching without texts: nobody has control" in note.text()
    assert "watching, nobody has control" in window.top_bar.status.text()
    control.click()
    qtbot.waitUntil(lambda: "This window has control" in note.text(), timeout=WAIT)
    with RemoteEngine(ServerAddress(served.server.address, served.keys["ann"])) as other:
        assert control_words(other.status) == "desk has control"
    assert page.model.server.fleet.isHidden(), "one engine answers"
    assert page.model.load.text() == "Disconnect"
    page.model.load.click()
    qtbot.waitUntil(lambda: session.state is SessionState.EMPTY, timeout=WAIT)
    assert (session.server, session.config) == (None, before)
    assert engine.alive
    assert page.model.load.text() == "Connect"


def test_who_may_only_watch_is_told_so_and_sees_no_texts(
    qtbot: QtBot, window: MainWindow, served: Served, connect: Connect
) -> None:
    connect("ann")
    thread = threading.Thread(target=served.ask, args=(ONCE,))
    thread.start()
    shown = window.bridge.requests
    qtbot.waitUntil(lambda: any(view.ended for view in shown.values()), timeout=WAIT)
    thread.join()
    assert not any(view.text or view.prompt for view in shown.values())
    assert all(view.tokens.count(0) == len(view.tokens) for view in shown.values())
    fields = window.page.model.server
    assert "Watching without texts: the key 'ann' may watch" in fields.note.text()
    assert "; nobody has control." in fields.note.text()
    assert fields.control.isHidden()
    with qtbot.waitSignal(window.session.submit_failed, timeout=WAIT) as refused:
        window.page.composer.send_action.trigger()
    assert "may watch, not send" in refused.args[0]


def test_a_server_that_was_restarted_is_told_with_what_was_lost(
    qtbot: QtBot, window: MainWindow, engine: EngineProcess, tmp_path: Path
) -> None:
    served, session = Served(engine, tmp_path), window.session
    try:
        session.start(session.connect_to(ServerAddress(served.server.address, served.keys["desk"])))
        qtbot.waitUntil(lambda: session.ready and session.trace is not None, timeout=WAIT)
        before, port = session.trace, int(served.server.address.rpartition(":")[2])
        assert before is not None
        served.stop()
        qtbot.waitUntil(lambda: "connection lost" in window.top_bar.status.text(), timeout=WAIT)
        assert session.ready
        served.start(port)
        qtbot.waitUntil(lambda: session.trace is not before, timeout=WAIT)
        qtbot.waitUntil(lambda: "in control" in window.top_bar.status.text(), timeout=WAIT)
        assert before.complete
        qtbot.waitUntil(lambda: "was restarted" in window.banner.title.text(), timeout=WAIT)
    finally:
        served.stop()


def test_a_key_that_is_not_known_is_told_and_nothing_else_changes(
    qtbot: QtBot, window: MainWindow, served: Served
) -> None:
    model = window.page.model
    model.source.set_value(SERVER)
    model.server.url.setText("http://127.0.0.1:1")
    for key, told in (("", "cannot be reached"), ("bs-some-wrong-key-here", "not known")):
        model.server.key.setText(key)
        with qtbot.waitSignal(window.session.load_failed, timeout=WAIT):
            model.load.click()
        assert told in model.error.text()
        assert "wrong" not in model.error.text()
        assert (window.session.state, window.session.server) == (SessionState.EMPTY, None)
        model.server.url.setText(served.server.address)
    model.server.url.setText("")
    model.load.click()
    assert "Type a server's address" in model.error.text()
