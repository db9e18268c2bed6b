"""Conversations in one SQLite file, written as they grow and found by their words. No Qt in here.

Everything here takes well under a frame: it is called on the window's thread.
"""

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from app.chat.store.schema import opened
from app.chat.store.tree import Attachment, Facts, Role, Tree, Turn
from app.language import tr
from engine import InvalidInput

EXCERPT = 12  # words around what was found
MOST_EXCERPTS = 1_000


@dataclass(slots=True, eq=False)
class Conversation:
    """`changed` is when something was last said. `columns` are the presets' names, of which the second answers where
    it is `beside`, `ends` the turns at which they stand. `excerpt` is where the words that were searched for are,
    "" in its title."""

    id: int
    title: str
    named: bool
    pinned: bool
    changed: float
    columns: tuple[str, ...] = ()
    beside: bool = False
    ends: tuple[int, ...] = ()
    excerpt: str = ""


class ConversationStore:
    """`path` None keeps nothing beyond this object. Raises InvalidInput where the file cannot be used."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.file = path, opened(path)
        self._known: dict[int, Conversation] = {}  # one object for each, whoever asks

    def close(self) -> None:
        self.file.close()

    # -- conversations --------------------------------------------------------------------------------------------

    def conversations(self, words: str = "") -> list[Conversation]:
        """Pinned ones first, then the newest; only those that have all of these words, or their beginnings."""
        columns = "c.id, title, named, pinned, changed, columns, beside, ends"
        order = "ORDER BY pinned DESC, changed DESC, c.id DESC"
        asked = [query(word) for word in words.split()]
        if not asked:
            rows = self.file.execute(f"SELECT {columns}, '' FROM conversation c WHERE deleted IS NULL {order}")
            return [self._conversation(row) for row in rows]
        each = " INTERSECT ".join(["SELECT conversation FROM found WHERE found MATCH ?"] * len(asked))
        text = f"SELECT {columns} FROM conversation c WHERE deleted IS NULL AND id IN ({each}) {order}"
        excerpts = self._excerpts(asked[0])
        return [self._conversation((*row, excerpts.get(row[0]))) for row in self.file.execute(text, asked)]

    def create(self, title: str, columns: Sequence[str]) -> Conversation:
        now = time.time()
        with self.writing():
            asked = "INSERT INTO conversation (title, changed, columns) VALUES (?, ?, ?)"
            id = _id(self.file.execute(asked, (title, now, json.dumps(list(columns)))))
            self._index(2 * id + 1, title, id)
        made = self._known[id] = Conversation(id, title, False, False, now, tuple(columns))
        return made

    def save(self, conversation: Conversation) -> None:
        """Its title, whether it is pinned, how it is answered, and where it stands."""
        c = conversation
        with self.writing():
            columns = "title = ?, named = ?, pinned = ?, columns = ?, beside = ?, ends = ?"
            given = (c.title, c.named, c.pinned, json.dumps(c.columns), c.beside, json.dumps(c.ends), c.id)
            self.file.execute(f"UPDATE conversation SET {columns} WHERE id = ?", given)
            self._index(2 * c.id + 1, c.title, c.id)

    def delete(self, conversation: Conversation) -> None:
        """It is not listed any more; until the next start it can be put back."""
        self._mark("conversation", [conversation.id], time.time())

    def put_back(self, conversation: Conversation) -> None:
        self._mark("conversation", [conversation.id], None)

    # -- turns ----------------------------------------------------------------------------------------------------

    def tree(self, conversation: Conversation) -> Tree:
        asked = "SELECT id, parent, role, text, files, facts, next FROM turn WHERE conversation = ? AND deleted IS NULL"
        return Tree([_turn(row) for row in self.file.execute(f"{asked} ORDER BY id", (conversation.id,))])

    def add(
        self, conversation: Conversation, parent: Turn | None, role: Role, text: str = "", *,
        files: Sequence[Attachment] = (), facts: Facts | None = None,
    ) -> Turn:  # fmt: skip
        """A new turn after another one, or as the first."""
        facts = facts or Facts()
        conversation.changed = time.time()
        given = (
            conversation.id,
            parent.id if parent is not None else None,
            role.value,
            text,
            json.dumps([asdict(file) for file in files]),
            _told(facts),
        )
        with self.writing():
            asked = "INSERT INTO turn (conversation, parent, role, text, files, facts) VALUES (?, ?, ?, ?, ?, ?)"
            id = _id(self.file.execute(asked, given))
            self._choose(parent, id)
            self.file.execute(
                "UPDATE conversation SET changed = ? WHERE id = ?", (conversation.changed, conversation.id)
            )
            turn = Turn(id, parent.id if parent is not None else None, role, text, tuple(files), facts)
            self._index(2 * id, turn.said, conversation.id)
        return turn

    def write(self, turn: Turn, *, last: bool) -> None:
        """An answer as far as it is there; it is found by its words once it is the `last` time."""
        with self.writing():
            self.file.execute(
                "UPDATE turn SET text = ?, facts = ? WHERE id = ?", (turn.text, _told(turn.facts), turn.id)
            )
            if last:
                self.file.execute("UPDATE found SET text = ? WHERE rowid = ?", (turn.said, 2 * turn.id))

    def choose(self, tree: Tree, turn: Turn) -> None:
        """Of the variants this one is shown, at the next start too."""
        tree.choose(turn)
        with self.writing():
            self._choose(tree.turns.get(turn.parent) if turn.parent is not None else None, turn.id)

    def delete_turns(self, turns: Iterable[Turn]) -> None:
        self._mark("turn", [turn.id for turn in turns], time.time())

    def put_back_turns(self, turns: Iterable[Turn]) -> None:
        self._mark("turn", [turn.id for turn in turns], None)

    # -- inside ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """All of it or nothing. Raises InvalidInput where the file takes nothing."""
        try:
            with self.file:
                yield
        except sqlite3.Error as error:
            words = tr(
                "{path} cannot be written to ({error}): make room on its disk, or make it writable",
                path=self.path,
                error=error,
            )
            raise InvalidInput(words) from error

    def _conversation(self, row: Sequence[Any]) -> Conversation:
        id, title, named, pinned, changed, columns, beside, ends, excerpt = row
        if id not in self._known:
            names, stands = tuple(json.loads(columns)), tuple(json.loads(ends))
            self._known[id] = Conversation(id, title, bool(named), bool(pinned), changed, names, bool(beside), stands)
        self._known[id].excerpt = excerpt or ""
        return self._known[id]

    def _excerpts(self, asked: str) -> dict[int, str]:
        """By conversation, where in its turns this stands."""
        text = (
            f"SELECT conversation, snippet(found, 0, '', '', '…', {EXCERPT}) FROM found "
            "WHERE found MATCH ? AND rowid % 2 = 0 ORDER BY rowid DESC LIMIT ?"
        )
        return dict(self.file.execute(text, (asked, MOST_EXCERPTS)))

    def _choose(self, parent: Turn | None, id: int) -> None:
        if parent is not None:
            self.file.execute("UPDATE turn SET next = ? WHERE id = ?", (id, parent.id))

    def _mark(self, table: str, ids: Sequence[int], deleted: float | None) -> None:
        with self.writing():
            self.file.executemany(f"UPDATE {table} SET deleted = ? WHERE id = ?", [(deleted, id) for id in ids])

    def _index(self, row: int, text: str, conversation: int) -> None:
        """Rows of turns are even, those of titles odd."""
        self.file.execute("DELETE FROM found WHERE rowid = ?", (row,))
        self.file.execute("INSERT INTO found (rowid, text, conversation) VALUES (?, ?, ?)", (row, text, conversation))


def query(word: str) -> str:
    """A word, or its beginning, in the full-text index' own language."""
    return '"' + word.replace('"', '""') + '"*'


def _id(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _told(facts: Facts) -> str:
    plain = Facts()
    return json.dumps({name: value for name, value in asdict(facts).items() if value != getattr(plain, name)})


def _turn(row: Sequence[Any]) -> Turn:
    id, parent, role, text, files, facts, then = row
    known = {field.name for field in fields(Facts)}
    return Turn(
        id=id,
        parent=parent,
        role=Role(role),
        text=text,
        files=tuple(Attachment(**file) for file in json.loads(files)),
        facts=Facts(**{name: value for name, value in json.loads(facts).items() if name in known}),
        then=then,
    )
