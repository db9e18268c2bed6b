"""A conversation's turns as a tree: each follows another one, and those that follow the same are its variants. No Qt
in here."""

from dataclasses import dataclass, field
from enum import StrEnum

from app.language import tr
from engine.config import Message
from engine.trace import split_thoughts


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file that goes before a prompt's own words; `tokens` as the model counted them that was there then."""

    name: str
    text: str
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """How an answer came about. `preset` and `model` are names; `run` is the file its request is in, "" where none is
    known, and `request` its number there. Without `reason` or `error` it is still written, or was cut off with the
    window. Seconds and tokens a second are None until they happen. `thought`: seconds from the first token to the end
    of the model's thoughts, None where they did not end; `thoughts` tokens they took."""

    preset: str = ""
    model: str = ""
    run: str = ""
    request: int = -1
    prompt_tokens: int = 0
    tokens: int = 0
    ttft: float | None = None
    rate: float | None = None
    thought: float | None = None
    thoughts: int = 0
    reason: str = ""
    error: str = ""

    @property
    def over(self) -> bool:
        return bool(self.reason or self.error)


@dataclass(slots=True, eq=False)
class Turn:
    """`parent` is the turn that it follows, None for a first one; `then` the one after it that was shown last."""

    id: int
    parent: int | None
    role: Role
    text: str = ""
    files: tuple[Attachment, ...] = ()
    facts: Facts = field(default_factory=Facts)
    then: int | None = None

    @property
    def content(self) -> str:
        """As the model is given it: its files first, each between fences, then what was written."""
        parts = [f"{file.name}\n{(mark := fence(file.text))}\n{file.text.rstrip()}\n{mark}" for file in self.files]
        return "\n\n".join((*parts, self.text) if self.text else parts)

    @property
    def said(self) -> str:
        """The same without what a model thought."""
        return split_thoughts(self.text).answer if self.role is Role.ASSISTANT else self.content


class Tree:
    """The turns of one conversation, by id. Several may be first: what was edited there is a variant too."""

    def __init__(self, turns: list[Turn]) -> None:
        self.turns = {turn.id: turn for turn in turns}
        self._after: dict[int | None, list[int]] = {}
        for turn in turns:
            self._after.setdefault(turn.parent, []).append(turn.id)

    def add(self, turn: Turn) -> None:
        """A new one, which is shown from now on after its parent."""
        self.turns[turn.id] = turn
        self._after.setdefault(turn.parent, []).append(turn.id)
        self.choose(turn)

    def choose(self, turn: Turn) -> None:
        """Of the variants this one is shown."""
        if turn.parent is not None:
            self.turns[turn.parent].then = turn.id

    def variants(self, turn: Turn) -> list[Turn]:
        """All that follow the same turn in the same role, itself too, oldest first."""
        after = (self.turns[id] for id in self._after.get(turn.parent, ()) if id in self.turns)
        return sorted((other for other in after if other.role is turn.role), key=lambda other: other.id)

    def end_of(self, turn: Turn) -> Turn:
        """The last turn of the branch through this one, as it was shown last."""
        while after := [id for id in self._after.get(turn.id, ()) if id in self.turns]:
            turn = self.turns[turn.then if turn.then in after else max(after)]
        return turn

    def newest(self) -> Turn | None:
        """The end of the branch that was begun last; None where nothing was said."""
        first = [id for id in self._after.get(None, ()) if id in self.turns]
        return self.end_of(self.turns[max(first)]) if first else None

    def path(self, end: Turn | None) -> list[Turn]:
        """From the first turn to this one."""
        found: list[Turn] = []
        while end is not None:
            found.append(end)
            end = self.turns.get(end.parent) if end.parent is not None else None
        return found[::-1]

    def branch(self, turn: Turn) -> list[Turn]:
        """The turn and all that comes after it."""
        found = [turn]
        for each in found:
            found += [self.turns[id] for id in self._after.get(each.id, ()) if id in self.turns]
        return found

    def remove(self, turns: list[Turn]) -> None:
        for turn in turns:
            self.turns.pop(turn.id, None)

    def put_back(self, turns: list[Turn]) -> None:
        """Undoes `remove`."""
        self.turns.update((turn.id, turn) for turn in turns)


def messages(path: list[Turn], system: str = "") -> list[Message]:
    """What a model is sent to answer the last turn of a path. Answers that failed without a word are left out, and all
    thoughts: models are trained on conversations without earlier ones."""
    first: list[Message] = [{"role": "system", "content": system}] if system.strip() else []
    said = ((turn.role, turn.said) for turn in path)
    return [*first, *({"role": role.value, "content": content} for role, content in said if content)]


def fence(text: str) -> str:
    """Backticks that no line of the text has as many of."""
    runs = [len(line) - len(line.lstrip("`")) for line in text.splitlines()]
    return "`" * max(3, 1 + max(runs, default=0))


def title_of(text: str, most: int = 60) -> str:
    """A conversation's name from its first prompt: its first words, on one line."""
    words = " ".join(text.split())
    if len(words) <= most:
        return words or tr("New conversation")
    cut = words[:most].rsplit(" ", 1)[0]
    return f"{cut.rstrip(',.;:')} …"
