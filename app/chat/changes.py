"""What a person changes, each a step of the window's undo stack; what takes something away has a button to undo it."""

from __future__ import annotations

from collections.abc import Callable

from app.chat.store.conversations import Conversation, ConversationStore
from app.language import tr
from app.ui.banner import Action, Banner
from app.ui.undo import UndoStack
from app.words import sentence
from engine import InvalidInput

Given = tuple[str, bool, bool]  # a title, whether a person gave it, whether it is pinned


class Changes:
    """`listed` is called when the list of conversations is another."""

    def __init__(self, store: ConversationStore, undo: UndoStack, notice: Banner, listed: Callable[[], object]) -> None:
        self._store, self._undo, self._notice, self._listed = store, undo, notice, listed

    def rename(self, conversation: Conversation, title: str) -> None:
        c, words = conversation, tr("renamed the conversation “{title}”", title=conversation.title)
        self._give(words, c, (c.title, c.named, c.pinned), (title, True, c.pinned))

    def pin(self, conversation: Conversation) -> None:
        """Or no longer, where it is."""
        c = conversation
        if c.pinned:
            words = tr("unpinned the conversation “{title}”", title=c.title)
        else:
            words = tr("pinned the conversation “{title}”", title=c.title)
        self._give(words, c, (c.title, c.named, c.pinned), (c.title, c.named, not c.pinned))

    def take_away(self, words: str, away: Callable[[], object], back: Callable[[], object], more: str = "") -> None:
        """Does `away`; the notice says so, with `more`, and offers to undo it."""
        undo = self._do(words, away, back)
        if undo is not None:
            self._notice.tell("info", sentence(words), more, action=undo, passes=True)

    def failed(self, words: str) -> None:
        self._notice.tell("error", tr("That was not kept"), sentence(words))

    def _do(self, words: str, act: Callable[[], object], back: Callable[[], object]) -> Action | None:
        """What undoes it; None where it could not be done."""
        try:
            act()
        except InvalidInput as error:
            self.failed(str(error))
            return None
        return self._undo.did(words, back, act)

    def _give(self, words: str, conversation: Conversation, before: Given, after: Given) -> None:
        def give(values: Given) -> None:
            conversation.title, conversation.named, conversation.pinned = values
            self._store.save(conversation)
            self._listed()

        self._do(words, lambda: give(after), lambda: give(before))
