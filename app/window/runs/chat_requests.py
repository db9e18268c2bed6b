"""From an answer of the chat to its request on the Play page: of the engine's own trace, or of a saved run."""

from pathlib import Path

from PySide6.QtCore import QObject

from app.play.page import PlayPage
from app.session.session import Session
from app.window.runs.saved_runs import SavedRuns


class ChatRequests(QObject):
    """Shows one request, in all panels."""

    def __init__(self, session: Session, runs: SavedRuns, page: PlayPage, parent: QObject) -> None:
        super().__init__(parent)
        self._session, self._runs, self._page = session, runs, page
        self._wanted: tuple[Path, int] | None = None  # a run that is being read, and the request to show then
        runs.opened.connect(self._on_opened)

    def show(self, run: Path | None, request: int) -> None:
        """`run` is the file that the request is in, None where none was written."""
        if run is None or run == self._session.run_file:
            self._runs.close()
            self._page.open_request(request)
        elif run != self._runs.path:
            self._wanted = run, request
            self._runs.open(run)
        else:
            self._page.open_request(request)

    def _on_opened(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is not None and self._runs.path == wanted[0]:
            self._page.open_request(wanted[1])
