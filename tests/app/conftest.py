"""The window's tests: settings of their own, an event loop, and nothing left alive at the end."""

import asyncio
import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import qasync
import shiboken6
from PySide6.QtCore import QEvent, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.playback.bridge import Bridge
from app.session.session import THREADS, Session
from app.ui.garbage import collected_here
from app.ui.look import style_sheet, theme
from app.window.main_window import MainWindow
from engine import EngineConfig, ModelSpec
from tests.app.loopback_hub import hub, no_hub
from tests.app.told import engine, story, tell, told_runs
from tests.children import children
from tests.conftest import NewData

__all__ = ["engine", "hub", "no_hub", "story", "tell", "told_runs"]  # fixtures of another file
LOAD_MS = 60_000


@pytest.fixture
def qtbot(qtbot: QtBot) -> QtBot:
    """Waits a minute where a test does not say how long, as long as a busy machine needs for what is right."""
    for name in ("waitUntil", "waitSignal", "waitSignals"):
        setattr(qtbot, name, partial(getattr(qtbot, name), timeout=LOAD_MS))
    return qtbot


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_data: NewData) -> Iterator[Path]:
    """Settings and runs in the test's folder; the dark theme at its normal size before and after."""
    monkeypatch.setenv("BATCHSCOPE_DATA", str(new_data(tmp_path / "data")))
    with theme.one_change():
        theme.set_theme("dark")
        theme.set_zoom(1.0)
    yield tmp_path / "data"
    with theme.one_change():
        theme.present(None)
        theme.set_theme("dark")
        theme.set_zoom(1.0)


@pytest.fixture(scope="session", autouse=True)
def dressed(qapp: QApplication) -> None:
    style_sheet.apply(qapp)


@pytest.fixture(scope="module", autouse=True)
def collected(qapp: QApplication) -> Iterator[None]:
    """As in the window's own process: an engine's thread in this one collects nothing of Qt."""
    with collected_here():
        yield


def _found_timers() -> Iterator[QTimer]:
    # By type: isinstance asks an object for its class, and lazy ones (torch has some) answer with warnings.
    return (o for o in gc.get_objects() if issubclass(type(o), QTimer))


class Settled:
    """All that is alive is frozen, a module's own engine too: looking through what comes later takes no time."""

    def __init__(self) -> None:
        gc.collect()
        self.timers = weakref.WeakSet(_found_timers())
        gc.freeze()

    def running(self) -> set[QTimer]:
        return {t for t in (*self.timers, *_found_timers()) if shiboken6.isValid(t) and t.isActive()}


@pytest.fixture(scope="module")
def _of_module() -> list[Settled]:
    return []


@pytest.fixture
def settled(_of_module: list[Settled]) -> Settled:
    """Made at the first test, when the module's own fixtures are there."""
    if not _of_module:
        _of_module.append(Settled())
    return _of_module[0]


def _windows() -> set[QWidget]:
    return {w for w in QApplication.topLevelWidgets() if shiboken6.isValid(w) and w.isVisible()}


def _threads() -> set[threading.Thread]:
    return {
        t
        for t in threading.enumerate()
        if t.is_alive() and not t.name.startswith(("tqdm", "grammars", "serving", "time-limit"))
    }


def _answering(threads: set[threading.Thread]) -> bool:
    """Whether one is a small server's, which sees only later than its client that it is done."""
    return any(t.name.endswith("(process_request_thread)") for t in threads)


@pytest.fixture(autouse=True)
def nothing_left(own_settings: Path, qapp: QApplication, settled: Settled) -> Iterator[None]:
    """Fails a test that leaves a thread, a running timer, a shown widget or a child process behind."""
    threads, timers, windows, before = _threads(), settled.running(), _windows(), children()
    yield
    gc.collect()
    qapp.processEvents()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    deadline = time.monotonic() + 20
    while (children() - before or _answering(_threads() - threads)) and time.monotonic() < deadline:
        time.sleep(0.01)  # a child whose start was given up ends by itself
    left = {
        "threads": [t.name for t in _threads() - threads],
        "timers": [f"{t.parent()!r} every {t.interval()} ms" for t in settled.running() - timers],
        "windows": [w.objectName() or repr(w) for w in _windows() - windows],
        "child processes": list(children() - before),
    }
    assert not any(left.values()), f"left behind: { {k: v for k, v in left.items() if v} }"


def wait_until(condition: Callable[[], bool], seconds: float = LOAD_MS / 1000) -> None:
    """qtbot.waitUntil for fixtures that outlive one test."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        QTest.qWait(5)


@pytest.fixture(scope="module")
def loop(qapp: QApplication) -> Iterator[asyncio.AbstractEventLoop]:
    """An asyncio loop whose tasks go on while the test waits with qtbot."""
    loop = qasync.QEventLoop(qapp)
    asyncio.set_event_loop(loop)
    asyncio._set_running_loop(loop)
    yield loop
    wait_until(lambda: not asyncio.all_tasks(loop))
    asyncio._set_running_loop(None)
    asyncio.set_event_loop(None)
    loop.close()


@contextlib.contextmanager
def open_session() -> Iterator[Session]:
    session = Session()
    yield session
    closing = session.start(session.close())
    wait_until(closing.done)
    closing.result()


@pytest.fixture
def session(qtbot: QtBot, loop: asyncio.AbstractEventLoop) -> Iterator[Session]:
    """An empty session, closed at the end."""
    with open_session() as session:
        yield session


@pytest.fixture
def doomed(qtbot: QtBot, session: Session) -> Session:
    """A session with the demo model, for tests that end its engine."""
    with qtbot.waitSignal(session.config_changed, timeout=LOAD_MS):
        session.start(session.load(ModelSpec("demo"), EngineConfig(max_running=8)))
    return session


@pytest.fixture(scope="module")
def shared(
    loop: asyncio.AbstractEventLoop, tmp_path_factory: pytest.TempPathFactory, new_data: NewData
) -> Iterator[Session]:
    """One engine for all tests of a module, since it takes seconds to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHSCOPE_DATA", str(new_data(tmp_path_factory.mktemp("shared") / "data")))
        with open_session() as session:
            session.start(session.load(ModelSpec("demo")))
            wait_until(lambda: session.ready and session.trace is not None)
            everyone = threading.Barrier(THREADS)  # all threads are there before a test counts them
            started = [session.start(session.off_thread(everyone.wait)) for _ in range(THREADS)]
            wait_until(lambda: all(task.done() for task in started))
            yield session


@pytest.fixture
def loaded(qtbot: QtBot, shared: Session) -> Iterator[Session]:
    """The shared session with a fresh trace; idle again at the end."""
    beginning = shared.start(shared.begin(EngineConfig(max_running=8)))
    wait_until(beginning.done)
    assert shared.ready
    yield shared
    shared.stop()
    trace = shared.trace
    assert trace is not None
    wait_until(lambda: all(view.ended is not None for view in trace.requests.values()))
    closing = shared.start(shared.close_file())
    wait_until(closing.done)


@pytest.fixture
def bridge(qtbot: QtBot) -> Iterator[Bridge]:
    bridge = Bridge()
    yield bridge
    bridge.stop()


@pytest.fixture
def window(qtbot: QtBot, loop: asyncio.AbstractEventLoop, bridge: Bridge) -> Iterator[MainWindow]:
    """The real window, shown and complete, with no model."""
    window = MainWindow(Session(), bridge)
    window.show()
    window.page.complete()
    window.fill_menu()
    yield window
    if not window.finished:
        with qtbot.waitSignal(window.closed, timeout=LOAD_MS):
            window.close()
    window.deleteLater()


@pytest.fixture
def ready(qtbot: QtBot, window: MainWindow) -> MainWindow:
    """The window with the demo model, ready to prompt."""
    with qtbot.waitSignal(window.session.config_changed, timeout=LOAD_MS):
        window.session.start(window.session.load(ModelSpec("demo"), EngineConfig(max_running=16)))
    return window
