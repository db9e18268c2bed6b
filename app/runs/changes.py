"""What a person changes in the list, each a step that can be undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtGui import QUndoStack

from app.runs.entry import Entry, parsed_tags
from app.runs.index import Marks
from app.runs.library import RunLibrary
from app.runs.trash import Trashed
from app.ui.banner import Banner
from app.ui.undo import Change
from app.words import bytes_words, counted, sentence
from engine import InvalidInput


def named(entries: Sequence[Entry]) -> str:
    """ "run mixed", "3 runs"."""
    return f"run “{entries[0].title}”" if len(entries) == 1 else counted(len(entries), "run")


class RunChanges(QObject):
    """Renames, marks and deletes in the library; each change is pushed to the window's undo stack."""

    def __init__(self, library: RunLibrary, undo: QUndoStack, notice: Banner, parent: QObject) -> None:
        super().__init__(parent)
        self._library, self._undo, self._notice = library, undo, notice
        library.limited.connect(self._on_limited)

    def rename(self, path: Path, title: str) -> Path:
        """Where the run is then: where it was, if the title cannot be had."""
        library, entry = self._library, self._library.entries[path]
        try:
            new = library.rename(path, title)
        except InvalidInput as error:
            self._notice.tell("error", "The run was not renamed", sentence(str(error)))
            return path
        if new != path:
            words = f"renamed {named([entry])}"
            self._push(words, lambda: library.rename(new, path.stem), lambda: library.rename(path, new.stem))
        return new

    def tag(self, entries: Sequence[Entry], text: str) -> None:
        """These tags and no others, for each of them."""
        tags = parsed_tags(text)
        self._mark(f"tagged {named(entries)}", {e: Marks(tags, e.pinned) for e in entries if e.facts is not None})

    def pin(self, entry: Entry) -> None:
        """Makes it the baseline, the only one; or no longer, where it is."""
        marks = {entry: Marks(entry.tags, not entry.pinned)}
        for other in self._library.entries.values():
            if other.pinned and other.path != entry.path:
                marks[other] = Marks(other.tags)
        words = "took the baseline off" if entry.pinned else "pinned as baseline"
        self._mark(f"{words} {named([entry])}", marks)

    def delete(self, entries: Sequence[Entry]) -> None:
        """They can come back until the window closes."""
        try:
            trashed = self._library.delete([entry.path for entry in entries])
        except InvalidInput as error:
            self._notice.tell("error", "Nothing was deleted", sentence(str(error)))
            return
        size = bytes_words(sum(entry.size for entry in entries))
        self._push_deleted(f"deleted {named(entries)}", trashed)
        self._tell(f"Deleted {named(entries)}", f"{size} will be free when Batchscope closes.")

    def _on_limited(self, trashed: list[Trashed]) -> None:
        """Whoever takes them back wants no limit."""
        limit = self._library.limit

        def undo() -> None:
            self._library.set_limit(0)
            self._library.restore(trashed)

        count = counted(len(trashed), "run")
        self._push(f"deleted {count} beyond the limit", undo, lambda: self._library.set_limit(limit))
        words = f"The oldest without a tag went, so that no more than {bytes_words(limit)} are used."
        self._tell(f"Deleted {count} beyond the limit", f"{words} Undo brings them back and lifts the limit.")

    def _push_deleted(self, words: str, trashed: list[Trashed]) -> None:
        library, gone = self._library, list(trashed)

        def redo() -> None:
            gone[:] = library.delete([each.path for each in gone])

        self._push(words, lambda: library.restore(gone), redo)

    def _mark(self, words: str, marks: dict[Entry, Marks]) -> None:
        library = self._library
        after = {e.facts.identity: m for e, m in marks.items() if e.facts is not None}
        before = {e.facts.identity: Marks(e.tags, e.pinned) for e in marks if e.facts is not None}
        if after != before:
            library.mark(after)
            self._push(words, lambda: library.mark(before), lambda: library.mark(after))

    def _push(self, words: str, undo: Callable[[], object], redo: Callable[[], object]) -> None:
        def failed(why: str) -> None:
            self._notice.tell("error", "That cannot be undone any more", sentence(why))

        self._undo.push(Change(words, undo, redo, failed))

    def _tell(self, title: str, words: str) -> None:
        place = self._undo.index()

        def undo() -> None:
            if self._undo.index() == place:
                self._undo.undo()

        self._notice.tell("info", title, words, action=("Undo", undo))
