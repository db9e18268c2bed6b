"""A new session: everything empty, on a fresh trace of the model there is. The one before can come back."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject

from app.language import tr
from app.playback.bridge import Bridge
from app.session.session import Session
from app.ui.banner import Banner
from app.ui.undo import UndoStack
from app.window.runs.saved_runs import SavedRuns
from engine import Trace


class NewSession(QObject):
    """`show_play` brings the Play page to the front."""

    def __init__(
        self,
        session: Session,
        bridge: Bridge,
        runs: SavedRuns,
        banner: Banner,
        undo: UndoStack,
        show_play: Callable[[], None],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._session, self._bridge, self._runs = session, bridge, runs
        self._banner, self._undo, self._show_play = banner, undo, show_play

    def ask(self) -> None:
        """Not while requests run."""
        if self._runs.running:
            words, stop = tr("A new session begins when they are done."), (tr("Stop them"), self._session.stop)
            self._banner.tell("warning", tr("Requests are running"), words, action=stop)
        else:
            self._session.start(self._begin())

    async def _begin(self) -> None:
        session, runs, trace, saved = self._session, self._runs, self._bridge.trace, self._runs.path
        file, texts = session.run_file or Path(tr("the session before")), bool(self._bridge.requests)
        runs.cancel()
        if not await session.begin(session.config):
            return
        runs.close()
        self._bridge.show(session.trace if session.ready and session.trace is not None else Trace())
        self._show_play()
        if saved is None and texts:  # a trace in the undo stack would stay in memory: its file is read again
            back = partial(runs.open, file) if file.is_file() else partial(runs.show, trace, file)
            undo = self._undo.did(tr("began a new session"), back, runs.close)
            words = tr("The one before is kept among the saved runs.")
            self._banner.tell("info", tr("A new session"), words, action=undo, passes=True)
