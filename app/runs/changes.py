"""What a person changes in the list, each a step that can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject

from app.language import tr, trn
from app.runs.entry import Entry, parsed_tags
from app.runs.index import Marks
from app.runs.library import RunLibrary
from app.runs.trash import Trashed
from app.ui.banner import Action, Banner
from app.ui.undo import UndoStack
from app.words import bytes_words, sentence
from engine import InvalidInput


class RunChanges(QObject):
    """Renames, marks and deletes in the library; each change is pushed to the window's undo stack."""

    def __init__(self, library: RunLibrary, undo: UndoStack, notice: Banner, parent: QObject) -> None:
        super().__init__(parent)
        self._library, self._undo, self._notice = library, undo, notice
        self._told = -1  # the place in the stack of what the notice offers to take back
        library.limited.connect(self._on_limited)
        undo.indexChanged.connect(self._on_undone)

    def rename(self, path: Path, title: str) -> Path:
        """Where the run is then: where it was, if the title cannot be had."""
        library, entry = self._library, self._library.entries[path]
        try:
            new = library.rename(path, title)
        except InvalidInput as error:
            self._notice.tell("error", tr("The run was not renamed"), sentence(str(error)))
            return path
        if new != path:
            words = tr("renamed run “{title}”", title=entry.title)
            self._undo.did(words, lambda: library.rename(new, path.stem), lambda: library.rename(path, new.stem))
        return new

    def tag(self, entries: Sequence[Entry], text: str) -> None:
        """These tags and no others, for each of them."""
        tags = parsed_tags(text)
        words = trn("tagged run “{title}”", "tagged {count:,} runs", len(entries), title=entries[0].title)
        self._mark(words, {e: Marks(tags, e.pinned) for e in entries if e.facts is not None})

    def pin(self, entry: Entry) -> None:
        """Makes it the baseline, the only one; or no longer, where it is."""
        marks = {entry: Marks(entry.tags, not entry.pinned)}
        for other in self._library.entries.values():
            if other.pinned and other.path != entry.path:
                marks[other] = Marks(other.tags)
        if entry.pinned:
            words = tr("took the baseline off run “{title}”", title=entry.title)
        else:
            words = tr("pinned as baseline run “{title}”", title=entry.title)
        self._mark(words, marks)

    def delete(self, entries: Sequence[Entry]) -> None:
        """They can come back until the window closes."""
        try:
            trashed = self._library.delete([entry.path for entry in entries])
        except InvalidInput as error:
            self._notice.tell("error", tr("Nothing was deleted"), sentence(str(error)))
            return
        count, first = len(entries), entries[0].title
        words = trn("deleted run “{title}”", "deleted {count:,} runs", count, title=first)
        told = trn("Deleted run “{title}”", "Deleted {count:,} runs", count, title=first)
        size = bytes_words(sum(entry.size for entry in entries))
        undo = self._did_delete(words, trashed)
        self._tell(told, tr("{size} will be free when Batchscope closes.", size=size), undo)

    def _did_delete(self, words: str, trashed: list[Trashed], limit: int = 0) -> Action:
        """With a `limit`, that is why: whoever takes them back wants none."""
        library = self._library
        gone, back = trashed, [each.path for each in trashed]

        def set_limit(value: int) -> None:
            if limit:
                library.set_limit(value)

        def undo() -> None:
            nonlocal back
            back = library.restore(gone)
            set_limit(0)

        def redo() -> None:
            nonlocal gone
            gone = library.delete(back)
            set_limit(limit)

        return self._undo.did(words, undo, redo)

    def _on_limited(self, trashed: list[Trashed]) -> None:
        limit, count = self._library.limit, len(trashed)
        words = trn("deleted {count:,} run beyond the limit", "deleted {count:,} runs beyond the limit", count)
        told = trn("Deleted {count:,} run beyond the limit", "Deleted {count:,} runs beyond the limit", count)
        why = tr(
            "The oldest without a tag went, so that no more than {limit} are used. Undo brings them back and lifts "
            "the limit.",
            limit=bytes_words(limit),
        )
        self._tell(told, why, self._did_delete(words, trashed, limit))

    def _mark(self, words: str, marks: dict[Entry, Marks]) -> None:
        library = self._library
        after = {e.facts.identity: m for e, m in marks.items() if e.facts is not None}
        before = {e.facts.identity: Marks(e.tags, e.pinned) for e in marks if e.facts is not None}
        if after != before:
            library.mark(after)
            self._undo.did(words, lambda: library.mark(before), lambda: library.mark(after))

    def _tell(self, title: str, words: str, undo: Action) -> None:
        self._told = self._undo.index()
        self._notice.tell("info", title, words, action=undo, passes=True)

    def _on_undone(self, index: int) -> None:
        """What the notice says is no longer so."""
        if index < self._told:
            self._told = -1
            self._notice.hide()
