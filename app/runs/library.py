"""The files of runs and races as the page has them: found, read one after another, renamed, marked, deleted."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from app import storage
from app.language import tr
from app.preferences import RUNS_FOLDER, RUNS_LIMIT
from app.runs.entry import Entry, over_limit
from app.runs.index import Marks, RunIndex
from app.runs.trash import BESIDE, Trash, Trashed
from app.session.long_work import LongWork, Outcome
from app.session.session import Session, SessionState
from engine import InvalidInput
from engine.compare import RACE_SUFFIX
from engine.library import RunFacts, read_library
from engine.trace import RUN_SUFFIX, forget_index

AGAIN_MS = 1000  # from one look to the next whether the engine is at rest, so that reading may go on
LONGEST_NAME = 120  # characters of a title: file systems take 255 bytes


def scan(folder: Path) -> list[Entry]:
    """The files of runs and races in a folder, in no order."""
    if not folder.is_dir():
        return []
    entries = []
    for file in os.scandir(folder):
        if file.name.endswith((RUN_SUFFIX, RACE_SUFFIX)) and file.is_file():
            told = file.stat()
            entries.append(Entry(Path(file.path), told.st_size, told.st_mtime_ns))
    return entries


def _recorded(entry: Entry) -> Entry:
    """A file that is still written: what came last lies beside it."""
    log = entry.path.with_name(f"{entry.path.name}-wal")
    return replace(entry, recording=True, size=entry.size + (log.stat().st_size if log.exists() else 0))


class RunLibrary(QObject):
    """`entries` by path. Files are read while `reads` is on and the engine has nothing to do, each once."""

    changed = Signal()  # other entries than before
    told = Signal(object)  # Path: its entry is another
    limited = Signal(object)  # list[Trashed] that went because of the limit
    failed = Signal(str)
    _heard = Signal(object, object, str)

    def __init__(self, session: Session, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.entries: dict[Path, Entry] = {}
        self.index = RunIndex(storage.data() / "runs.index")
        self.trash = Trash(storage.data() / "trash", lambda path: forget_index(storage.indexes(), path))
        self.reads = self._scanning = self.known = False  # known: it has been looked what is there
        self._queue: list[Path] = []  # what is read, in this order
        self._again = QTimer(self, interval=AGAIN_MS, singleShot=True)
        self._again.timeout.connect(self._read)
        self._work = LongWork(session, self)
        self._work.ended.connect(self._on_read)
        self._heard.connect(self._on_heard)
        session.state_changed.connect(self._on_state)
        session.submitted.connect(self._work.cancel)
        RUNS_LIMIT.on_change(self.changed.emit, self)
        RUNS_FOLDER.on_change(self.refresh, self)

    # -- what is there --------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.entries.values())

    @property
    def unread(self) -> list[Entry]:
        """The newest first."""
        return sorted((e for e in self.entries.values() if e.unread), key=lambda e: -e.modified)

    @property
    def baseline(self) -> Entry | None:
        return next((entry for entry in self.entries.values() if entry.pinned), None)

    @property
    def limit(self) -> int:
        """Bytes that the files may take; 0 is no limit."""
        return RUNS_LIMIT.value

    def set_limit(self, limit: int) -> None:
        """From now on; `keep_limit` keeps it."""
        RUNS_LIMIT.set(limit)

    def refresh(self) -> None:
        """Looks what is there now, and goes on reading."""
        if not self._scanning and not self._session.closing:
            self._scanning = True
            self._session.start(self._refresh())

    async def _refresh(self) -> None:
        recording = self._session.run_file
        try:
            found = await self._session.off_thread(lambda: self._found(recording))
        except OSError as error:
            self.failed.emit(tr("the folder of runs cannot be read: {why}", why=error))
            return
        finally:
            self._scanning = False
        now = self._now
        entries = {entry.path: replace(entry, reading=entry.path == now) for entry in found}
        if entries != self.entries or not self.known:
            self.entries, self.known = entries, True
            self.changed.emit()
        self.keep_limit()
        self._read()

    def _found(self, recording: Path | None) -> list[Entry]:
        found = [_recorded(entry) if entry.path == recording else entry for entry in scan(storage.runs())]
        known = self.index.entries(found)
        self.index.forget_others({entry.path.name for entry in found})
        return known

    # -- reading --------------------------------------------------------------------------------------------------

    @property
    def reading(self) -> bool:
        return self._work.running

    def set_reads(self, reads: bool) -> None:
        """Whether another reading may begin. One under way goes on: it is of low priority, and begun anew it would have
        to read its file from the beginning."""
        self.reads = reads
        self._read()

    def close(self) -> None:
        """Nothing is read any more, and what was deleted is gone."""
        self.reads = False
        self._again.stop()
        self._work.close()
        self.trash.empty()

    @property
    def _now(self) -> Path | None:
        """The file that is read now: the child reads one after another."""
        unread = (path for path in self._queue if (entry := self.entries.get(path)) is not None and entry.unread)
        return next(unread, None) if self.reading else None

    def _read(self) -> None:
        paths = [entry.path for entry in self.unread]
        if not (paths and self.reads) or self.reading:
            return
        if self._session.state is SessionState.LEASED or self._session.busy:
            self._again.start()
            return

        def work(report: object, cancelled: threading.Event) -> None:
            read_library(paths, self._heard.emit, cancelled)

        self._queue = paths
        self._work.start(work)
        self._tell_now()

    def _tell_now(self) -> None:
        """The file that is read now says so, and no other."""
        now = self._now
        for path, entry in list(self.entries.items()):
            if entry.reading != (path == now):
                self._set(replace(entry, reading=path == now))

    def _on_heard(self, path: Path, facts: RunFacts | None, problem: str) -> None:
        entry = self.entries.get(path)
        if entry is not None and entry.unread:
            marks = self.index.marks(facts.identity) if facts is not None else Marks()
            read = replace(entry, facts=facts, problem=problem, tags=marks.tags, pinned=marks.pinned, reading=False)
            if not read.recording:  # its file's time may not tell that it grew
                self.index.keep_facts(read)
            self._set(read)
            self._tell_now()

    def _on_read(self, outcome: Outcome) -> None:
        """The child reads in the order of the queue: where it died, it died of the first that is left."""
        left = [entry for path in self._queue if (entry := self.entries.get(path)) is not None and entry.unread]
        if outcome.error and left:
            self._set(replace(left[0], problem=tr("it cannot be read: {why}", why=outcome.error)))
        self._tell_now()
        if outcome.cancelled:  # for requests that may not be there yet
            self._again.start()
        else:
            self._read()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LEASED:
            self._work.cancel()
        else:
            self._read()

    # -- what a person does ---------------------------------------------------------------------------------------

    def rename(self, path: Path, title: str) -> Path:
        """Raises InvalidInput for a title that no file can have, and while the run is still written."""
        entry, title = self._at_rest(path), " ".join(title.split())
        if not title or len(title) > LONGEST_NAME or "/" in title or "\0" in title or title.startswith("."):
            remedy = tr("a run is called as its file; give 1 to {most} characters without /", most=LONGEST_NAME)
            raise InvalidInput(f"title={title!r:.60}: {remedy}")
        new = path.with_name(title + path.suffix)
        if new == path:
            return path
        if new.exists():
            remedy = tr("another run is called so; choose another title")
            raise InvalidInput(f"title={title!r}: {remedy}")
        try:
            for beside in BESIDE:
                old = path.with_name(path.name + beside)
                if not beside or old.exists():
                    old.rename(new.with_name(new.name + beside))
        except OSError as error:
            raise InvalidInput(tr("{name} cannot be renamed: {why}", name=path.name, why=error.strerror)) from error
        del self.entries[path]
        renamed = self.entries[new] = replace(entry, path=new)
        if not renamed.unread:
            self.index.keep_facts(renamed)
        self.changed.emit()
        return new

    def mark(self, marks: dict[str, Marks]) -> None:
        """Sets the marks of runs by their identity."""
        for identity, own in marks.items():
            self.index.keep_marks(identity, own)
        for entry in list(self.entries.values()):
            if entry.facts is not None and entry.facts.identity in marks:
                own = marks[entry.facts.identity]
                self._set(replace(entry, tags=own.tags, pinned=own.pinned))

    def delete(self, paths: Iterable[Path]) -> list[Trashed]:
        """Into the trash. Raises InvalidInput where one is still written or cannot be moved, and then none goes."""
        for path in (paths := list(paths)):
            self._at_rest(path)
        trashed: list[Trashed] = []
        try:
            for path in paths:
                trashed.append(self.trash.take(path))
        except InvalidInput:
            for each in trashed:
                self.trash.give_back(each)
            raise
        for path in paths:
            del self.entries[path]
        self.changed.emit()
        return trashed

    def restore(self, trashed: Sequence[Trashed]) -> list[Path]:
        """Where they are now. Raises InvalidInput."""
        paths = [self.trash.give_back(each) for each in trashed]
        found = [entry for entry in scan(storage.runs()) if entry.path in paths]
        self.entries |= {entry.path: entry for entry in self.index.entries(found)}
        self.changed.emit()
        self._read()
        return paths

    def _at_rest(self, path: Path) -> Entry:
        entry = self.entries.get(path)
        if entry is None:
            raise InvalidInput(tr("{name} is not here any more", name=path.name))
        if path == self._session.run_file:
            raise InvalidInput(tr("{name} is being recorded; begin a new session first (Ctrl+Shift+N)", name=path.name))
        return entry

    def keep_limit(self) -> None:
        """Deletes what goes beyond it."""
        going = over_limit(self.entries.values(), self.limit)
        if going:
            try:
                self.limited.emit(self.delete([entry.path for entry in going]))
            except InvalidInput as error:
                self.failed.emit(str(error))

    def _set(self, entry: Entry) -> None:
        self.entries[entry.path] = entry
        self.told.emit(entry.path)
