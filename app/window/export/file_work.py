"""A file that is written off the window's thread: the banner says how far that is, and what came of it."""

from pathlib import Path

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QDesktopServices

from app import storage
from app.language import tr
from app.session.loading.progress import LoadStatus
from app.session.long_work import LongWork, Outcome, Work
from app.session.session import Session
from app.ui.banner import Banner
from app.ui.export import FOLDER
from app.words import sentence


class FileWork(QObject):
    """One file at a time."""

    def __init__(self, session: Session, banner: Banner, parent: QObject) -> None:
        super().__init__(parent)
        self._banner, self._path = banner, Path()
        self._work = LongWork(session, self)
        self._work.progressed.connect(self._on_progress)
        self._work.ended.connect(self._on_ended)

    @property
    def running(self) -> bool:
        return self._work.running

    def write(self, path: Path, work: Work) -> None:
        """Begins `work`, which writes the file; its folder is offered the next time."""
        if self._work.running:
            words = tr("{file} is written; export the next one when that is done.", file=self._path.name)
            self._banner.tell("info", tr("An export is under way"), words, action=(tr("Cancel it"), self._work.cancel))
            return
        self._path = path
        storage.settings().setValue(FOLDER, str(path.parent))
        self._tell("")
        self._work.start(work)

    def _tell(self, words: str) -> None:
        self._banner.tell(
            "info", tr("Writing {file}", file=self._path.name), words, action=(tr("Cancel"), self._work.cancel)
        )

    def _on_progress(self, status: LoadStatus) -> None:
        counts = {"done": status.done, "total": status.total}
        if status.stage == "drawing":
            self._tell(tr("{done:,} of {total:,} pictures", **counts))
        else:
            self._tell(tr("{done:,} of {total:,} records", **counts))

    def _on_ended(self, outcome: Outcome) -> None:
        if outcome.error:
            self._banner.tell("error", tr("{file} was not written", file=self._path.name), sentence(outcome.error))
        elif outcome.cancelled:
            self._banner.hide()
        else:
            folder = QUrl.fromLocalFile(str(self._path.parent))
            show = (tr("Show the folder"), lambda: QDesktopServices.openUrl(folder))
            told = tr("{file} was written", file=self._path.name), tr("To {folder}.", folder=self._path.parent)
            self._banner.tell("info", *told, action=show)
