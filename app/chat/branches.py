"""The conversation on show: its tree, and where each column stands in it. No Qt in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.chat.store.conversations import Conversation, ConversationStore
from app.chat.store.presets import Preset
from app.chat.store.tree import Attachment, Facts, Role, Tree, Turn
from app.chat.talk import Question

COLUMNS = 2


@dataclass(slots=True, eq=False)
class Removed:
    """What was taken out, and where the columns stood before."""

    turns: list[Turn]
    ends: list[Turn | None]


class Branches:
    """`ends` are the turns at which the columns stand; each column answers the path to its end."""

    def __init__(self, store: ConversationStore, conversation: Conversation) -> None:
        self._store, self.conversation = store, conversation
        self.tree: Tree = store.tree(conversation)
        newest = self.tree.newest()
        ends = [self.tree.turns.get(id, newest) for id in conversation.ends] or [newest]
        self.ends: list[Turn | None] = (ends * COLUMNS)[:COLUMNS]

    def path(self, column: int) -> list[Turn]:
        return self.tree.path(self.ends[column])

    def ask(self, text: str, files: Sequence[Attachment], presets: Sequence[Preset]) -> list[Question]:
        """A prompt after the end of each column that answers; where they stand at the same turn, it is one turn."""
        asked: dict[Turn | None, Turn] = {}
        found = []
        for column, preset in enumerate(presets):
            end = self.ends[column]
            if end not in asked:
                asked[end] = self._add(end, Role.USER, text, files)
            found.append(self._answer(column, asked[end], preset))
        if len(presets) == 1 and self.ends[1] in asked:
            self.ends[1] = self.ends[0]  # nothing parts the columns yet
        self.keep()
        return found

    def say_otherwise(self, column: int, turn: Turn, text: str, preset: Preset) -> list[Question]:
        """A variant of a prompt, with its files, and an answer to it."""
        before = self.tree.turns.get(turn.parent) if turn.parent is not None else None
        question = self._answer(column, self._add(before, Role.USER, text, turn.files), preset)
        self.keep()
        return [question]

    def answer_again(self, column: int, turn: Turn, preset: Preset) -> list[Question]:
        """A variant of an answer."""
        question = self._answer(column, self.tree.turns[turn.parent or 0], preset)
        self.keep()
        return [question]

    def show_variant(self, column: int, turn: Turn, by: int) -> None:
        """The branch through another variant of a turn, as it was shown last."""
        variants = self.tree.variants(turn)
        place = min(max(variants.index(turn) + by, 0), len(variants) - 1)
        self._store.choose(self.tree, variants[place])
        self.ends[column] = self.tree.end_of(variants[place])
        self.keep()

    def remove(self, turn: Turn) -> Removed:
        """Takes a turn out with all that came after it; columns that stood there go to the variant beside it."""
        branch, variants = self.tree.branch(turn), self.tree.variants(turn)
        before = self.tree.turns.get(turn.parent) if turn.parent is not None else None
        place = variants.index(turn)
        beside = next(iter([*variants[:place][::-1], *variants[place + 1 :]]), None)
        removed = Removed(branch, list(self.ends))
        self._take_out(removed, self.tree.end_of(beside) if beside is not None else before)
        return removed

    def remove_again(self, removed: Removed) -> None:
        turn = removed.turns[0]
        self._take_out(removed, self.tree.turns.get(turn.parent) if turn.parent is not None else None)

    def put_back(self, removed: Removed) -> None:
        """Undoes `remove`."""
        self._store.put_back_turns(removed.turns)
        self.tree.put_back(removed.turns)
        self.ends = list(removed.ends)
        self.keep()

    def keep(self) -> None:
        """Where the columns stand is known at the next start too."""
        self.conversation.ends = tuple(end.id for end in self.ends if end is not None)
        self._store.save(self.conversation)

    def _take_out(self, removed: Removed, instead: Turn | None) -> None:
        self._store.delete_turns(removed.turns)
        self.tree.remove(removed.turns)
        self.ends = [instead if end in removed.turns else end for end in self.ends]
        self.keep()

    def _answer(self, column: int, asked: Turn, preset: Preset) -> Question:
        answer = self.ends[column] = self._add(asked, Role.ASSISTANT, "", ())
        answer.facts = Facts(preset=preset.name)
        return Question(answer, self.tree.path(asked), preset)

    def _add(self, after: Turn | None, role: Role, text: str, files: Sequence[Attachment]) -> Turn:
        turn = self._store.add(self.conversation, after, role, text, files=files)
        self.tree.add(turn)
        return turn
