"""The process around the window: its QApplication, its event loop, its signals, until the window is closed."""

import asyncio
import atexit
import contextlib
import gc
import math
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import qasync
from PySide6.QtCore import QLibraryInfo, QMessageLogContext, QTimer, QtMsgType, QTranslator, qInstallMessageHandler
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication

import resources
from app import preferences, storage
from app.desktop.settings.applied import Applied
from app.language import spoken
from app.playback.bridge import Bridge
from app.preferences import KEEP_LOG
from app.reports.facts import facts_text
from app.reports.reporting import Reports, reporting
from app.session.session import Session
from app.stage.scene import Scene
from app.ui.garbage import collected_here
from app.ui.look import style_sheet
from app.window.main_window import MainWindow
from app.window.start.greeting import greet
from app.window.start.incidents import Incidents
from engine import EngineConfig, ModelSpec
from engine.remote import ServerAddress

SETTLED_MS = 3000
POLL = 0.02  # seconds


def make_application() -> QApplication:
    """The QApplication with the remembered theme and zoom."""
    existing = QApplication.instance()
    app = existing if isinstance(existing, QApplication) else QApplication(sys.argv[:1])
    if existing is None and app.platformName() == "offscreen":
        qInstallMessageHandler(_say_of_qt)
        atexit.register(qInstallMessageHandler, None)
    storage.keep_private()
    app.setApplicationName("batchscope")
    app.setApplicationDisplayName("Batchscope")
    app.setDesktopFileName("batchscope")
    app.setWindowIcon(QIcon(str(resources.path("icons/batchscope.svg"))))
    app.setQuitOnLastWindowClosed(False)
    if app.findChild(Applied) is None:
        Applied(app)
    if spoken() != "en" and app.findChild(QTranslator) is None:
        _translate_qt(app)
    style_sheet.apply(app)
    return app


def _say_of_qt(kind: QtMsgType, context: QMessageLogContext, text: str) -> None:
    """All that Qt has to say where there is no display, but for the hints that a window cannot give to none."""
    if not text.startswith("This plugin does not support "):
        print(text, file=sys.stderr)


def _translate_qt(app: QApplication) -> None:
    """Qt's own words, of its dialogs and of keys, in the language that is spoken."""
    translator = QTranslator(app)
    if translator.load(f"qtbase_{spoken()}", QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)):
        app.installTranslator(translator)


def settle() -> None:
    """What is there when the window is ready stays to the end: the garbage collector need not look at it again, which
    takes tens of milliseconds each time."""
    gc.collect()
    gc.freeze()


@contextlib.asynccontextmanager
async def unattended_window(size: tuple[int, int]) -> AsyncIterator[MainWindow]:
    """The window for what is done without a person: it remembers no layout, and is closed and gone at the end."""
    window = MainWindow(Session(), Bridge())
    window.keeps_layout = False
    window.resize(*size)
    window.show()
    closed = asyncio.get_running_loop().create_future()
    window.closed.connect(lambda: closed.set_result(None))
    try:
        with collected_here():
            yield window
    finally:
        window.close()
        await closed
        window.deleteLater()


async def until(condition: Callable[[], bool], limit: float = math.inf) -> bool:
    """Whether the condition came true within so many seconds."""
    end = time.perf_counter() + limit
    while not condition():
        if time.perf_counter() > end:
            return False
        await asyncio.sleep(POLL)
    return True


def open_window(
    spec: ModelSpec | None,
    config: EngineConfig,
    *,
    in_process: bool = False,
    run: Path | None = None,
    tour: Sequence[Scene] = (),
    recorded: bool = False,
    present: bool = False,
    server: ServerAddress | None = None,
    on_made: Callable[[MainWindow], None] | None = None,
) -> int:
    """Opens the window, loads the model, and returns the exit code when the window is closed.

    `in_process` keeps the engine beside the window, for debugging. Without a `spec` no model is loaded until one is
    asked for; nor with `run`, a saved run to show. `tour` begins when the model is there; where it is `recorded`, at
    once and without one. `present`: in full screen, for a room. `server`:
    whose engine is shown in place of one here. `on_made` is handed the window before it is shown.
    """
    make_application()

    async def begin_tour(window: MainWindow) -> None:
        session, failed = window.session, list[str]()
        session.load_failed.connect(failed.append)

        def due() -> bool:
            whole = "live" in window.page.docks
            return session.ready or session.closing or bool(failed) or (recorded and whole)

        await until(due)
        if not session.closing:
            window.touring.recorded = recorded
            window.touring.take(tour)

    async def live(reports: Reports) -> None:
        reports.unexpected.listen(asyncio.get_running_loop())
        session = Session(in_process=in_process)
        bridge = Bridge()
        window = MainWindow(session, bridge)
        Incidents(window, reports)
        done = asyncio.get_running_loop().create_future()
        window.closed.connect(lambda: None if done.done() else done.set_result(None))
        if on_made is not None:
            on_made(window)
        window.fit_screen()
        window.show()
        window.start(None if recorded else spec, config, run, server)
        greet(window, first=run is None and server is None and not tour and not present)
        if present:
            window.presenting.begin()
        if tour:
            session.start(begin_tour(window))
        QTimer.singleShot(SETTLED_MS, window, settle)
        QTimer.singleShot(SETTLED_MS, window, reports.write_facts)
        previous = signal.signal(signal.SIGTERM, lambda *_: window.close())
        try:
            await done
        except asyncio.CancelledError:  # Ctrl+C in the terminal
            bridge.stop()
            await session.close()
        finally:
            signal.signal(signal.SIGTERM, previous)
            window.deleteLater()

    with contextlib.suppress(KeyboardInterrupt), _reporting() as reports, collected_here():
        qasync.run(live(reports))
    return 0


def _reporting() -> AbstractContextManager[Reports]:
    return reporting(storage.data(), lambda: facts_text(preferences.told()), log_file=KEEP_LOG.value)
