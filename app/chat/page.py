"""The Chat page: conversations at the left, the one on show in the middle, what is written next below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QStackedWidget

from app import storage
from app.chat.branches import COLUMNS, Branches
from app.chat.changes import Changes
from app.chat.columns import Columns
from app.chat.composer.composer import ChatComposer
from app.chat.composer.counting import Counting
from app.chat.list.panel import ConversationList
from app.chat.second_model import SecondModel, choices
from app.chat.store.conversations import Conversation, ConversationStore
from app.chat.store.presets import PresetStore
from app.chat.store.tree import Attachment, Role, Turn, title_of
from app.chat.talk import Question, Talk
from app.chat.welcome import Welcome
from app.language import tr
from app.session.recent_models import RecentModels
from app.session.session import Session
from app.ui.banner import Banner
from app.ui.layout.boxes import column, row
from app.ui.look import theme
from app.ui.page import Page
from app.ui.undo import UndoStack
from app.words import sentence
from engine import InvalidInput

FILE = "chats.sqlite"
COLUMNS_KEY = "chat/columns"
LIST, LEAST, SHARE = 250, 180, 0.24  # width of the list in pixels of the design, and its most of the page


class ChatPage(Page):
    """Builds the parts, joins their signals, and knows which conversation is on show."""

    inside_asked = Signal(object, int)  # Path of a run, or None; the number of a request in it

    def __init__(self, session: Session, undo: UndoStack, recents: RecentModels) -> None:
        super().__init__("chat_page")
        self._session, self._recents = session, recents
        self.notice = Banner()
        self.store = self._opened()
        self.changes = Changes(self.store, undo, self.notice, self._list)
        self.presets = PresetStore(self.store)
        self.talk = Talk(self.store, self)
        self.second = SecondModel(session, self)
        self.counting = Counting(session, self)
        self.list = ConversationList()
        self.columns = Columns(self.talk.writes)
        self.welcome = Welcome(session)
        self.composer = ChatComposer(session, self.counting, self._histories)
        self.branches: Branches | None = None  # of the conversation on show
        self._branches: dict[int, Branches] = {}  # of all that were: answers grow in them, undo goes back to them
        self._middle = QStackedWidget()
        self._middle.addWidget(self.welcome)
        self._middle.addWidget(self.columns)
        centre = column(self.notice, (self._middle, 1), self.composer, spacing=8)
        self.setLayout(row(self.list, (centre, 1), margins=(8, 8, 8, 8), spacing=8))
        for view in self.columns.views:
            view.before = self.list.view
        self._connect()
        self._make_actions()
        self.composer.offer(self.presets.all())
        self.composer.show_columns(self._kept_columns(), beside=False)
        self.new_conversation()
        self._list()
        self._place()
        self._tell_second()

    def _opened(self) -> ConversationStore:
        """The file, or one in memory that is told of."""
        try:
            return ConversationStore(storage.data() / FILE)
        except InvalidInput as error:
            gone = tr("{why}. Until then, what is said here is gone when the window closes.", why=sentence(str(error)))
            self.notice.tell("error", tr("Conversations are not kept"), gone)
            return ConversationStore(None)

    def _connect(self) -> None:
        for signal, act in (
            (self.list.new_asked, self._on_new),
            (self.list.chosen, self.show_conversation),
            (self.list.opened, self.composer.edit.setFocus),
            (self.list.searched, lambda words: self._list()),
            (self.list.renamed, self.changes.rename),
            (self.list.pin_asked, self.changes.pin),
            (self.list.delete_asked, self.delete),
            (self.composer.sent, self.send),
            (self.composer.stop_asked, self._on_stop),
            (self.composer.last_asked, self._on_last),
            (self.composer.presets_asked, self.show_presets),
            (self.composer.columns_changed, self._on_columns),
            (self.columns.edited, self._on_edited),
            (self.columns.variant_asked, self._on_variant),
            (self.columns.again_asked, self._on_again),
            (self.columns.inside_asked, self._on_inside),
            (self.columns.delete_asked, self._on_delete_turn),
            (self.columns.models_asked, self._offer_models),
            (self.columns.model_asked, self.second.choose),
            (self.second.changed, self._tell_second),
            (self.second.failed, self._on_second_failed),
            (self.welcome.asked, lambda text: self.send(text, [])),
            (self.talk.grown, self.columns.grow),
            (self.talk.ended, self._on_ended),
            (self.talk.failed, self.changes.failed),
            (theme.changes.theme_changed, self._place),
        ):
            signal.connect(act)

    def _make_actions(self) -> None:
        self.action(tr("New conversation"), self._on_new, "Ctrl+N")
        self.action(tr("Search conversations"), self._on_search, "Ctrl+F")
        self.action(tr("Chat presets …"), self.show_presets)

    # -- as a page of the window ----------------------------------------------------------------------------------

    def enter(self) -> None:
        self.composer.edit.setFocus()

    def give_up(self) -> bool:
        """Ends an edit, or the answers of the conversation on show."""
        if self.columns.end_edit():
            self.composer.edit.setFocus()
            return True
        busy = self.composer.answering
        if busy:
            self._on_stop()
        return busy

    def take_file(self, path: Path) -> bool:
        """Into the prompt; a folder is not for this page."""
        if path.is_dir():
            return False
        self.composer.add_file(path)
        return True

    def close_down(self) -> None:
        self.talk.close()
        self.second.close()
        self.counting.close()
        self.store.close()

    # -- conversations --------------------------------------------------------------------------------------------

    @property
    def conversation(self) -> Conversation | None:
        return self.branches.conversation if self.branches is not None else None

    def new_conversation(self) -> None:
        """An empty one, which is kept from its first prompt on."""
        self.branches = None
        self.list.select(None)
        self._show()

    def show_conversation(self, conversation: Conversation) -> None:
        if self.conversation is conversation:
            return
        self.branches = self._branches_of(conversation)
        self.list.select(conversation.id)
        self.composer.show_columns(conversation.columns, beside=conversation.beside)
        self._show()

    def _branches_of(self, conversation: Conversation) -> Branches:
        if conversation.id not in self._branches:
            self._branches[conversation.id] = Branches(self.store, conversation)
        return self._branches[conversation.id]

    def delete(self, conversation: Conversation) -> None:
        """It can come back until the window closes."""

        def away() -> None:
            self.store.delete(conversation)
            self.talk.stop(list(self._branches_of(conversation).tree.turns.values()))
            if self.conversation is conversation:
                self.new_conversation()
            self._list()

        def back() -> None:
            self.store.put_back(conversation)
            self._list()
            self.list.select(conversation.id)
            self.show_conversation(conversation)

        words = tr("deleted the conversation “{title}”", title=conversation.title)
        self.changes.take_away(words, away, back, tr("It is gone for good when Batchscope starts again."))

    def _on_new(self) -> None:
        self.new_conversation()
        self.composer.edit.setFocus()

    def _on_search(self) -> None:
        self.list.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.list.search.selectAll()

    def _list(self) -> None:
        shown = self.conversation
        self.list.show_conversations(
            self.store.conversations(self.list.search.text()), shown.id if shown is not None else None
        )

    # -- what is said ---------------------------------------------------------------------------------------------

    def send(self, text: str, files: Sequence[Attachment]) -> None:
        """A prompt to the conversation on show, or the first of a new one."""

        def ask() -> list[Question]:
            if self.branches is None:
                names = [choice.currentData() for choice in self.composer.choices]
                conversation = self.store.create(title_of(text or files[0].name), names)
                conversation.beside = self.composer.beside.isChecked()
                self.branches = self._branches_of(conversation)
            return self.branches.ask(text, files, self.composer.columns)

        self._ask(ask)
        self._list()

    def _ask(self, ask: Callable[[], list[Question]]) -> None:
        try:
            questions = ask()
        except InvalidInput as error:
            self.changes.failed(str(error))
            return
        if (conversation := self.conversation) is not None:
            self._send(conversation, questions)
        self._show()
        self.columns.to_end()

    def _send(self, conversation: Conversation, questions: list[Question]) -> None:
        """To the first model at once; to a second one when the first is done."""
        second = self.second.session
        branches = self.branches
        others = [q for q in questions if second is not None and branches is not None and q.turn is branches.ends[1]]
        first = [q for q in questions if q not in others]
        if first:
            self.talk.ask(conversation, first, self._session)
        if others and second is not None and first:
            self.talk.wait(conversation, others, second, [question.turn for question in first])
        elif others and second is not None:
            self.talk.ask(conversation, others, second)

    def _on_edited(self, place: int, turn: Turn, text: str) -> None:
        if (branches := self.branches) is not None:
            self._ask(lambda: branches.say_otherwise(place, turn, text, self.composer.columns[place]))
            self.composer.edit.setFocus()

    def _on_again(self, place: int, turn: Turn) -> None:
        if (branches := self.branches) is not None and self._session.ready:
            self._ask(lambda: branches.answer_again(place, turn, self.composer.columns[place]))

    def _on_variant(self, place: int, turn: Turn, by: int) -> None:
        if self.branches is not None:
            self.branches.show_variant(place, turn, by)
            self._show()

    def _on_delete_turn(self, place: int, turn: Turn) -> None:
        branches = self.branches
        if branches is None:
            return
        self.talk.stop(branches.tree.branch(turn))
        removed = None

        def away() -> None:
            nonlocal removed
            if removed is None:
                removed = branches.remove(turn)
            else:
                branches.remove_again(removed)
            self._show()

        def back() -> None:
            if removed is not None:
                branches.put_back(removed)
            self._show()

        prompt, answer = tr("deleted a prompt and what came after it"), tr("deleted an answer and what came after it")
        self.changes.take_away(prompt if turn.role is Role.USER else answer, away, back)

    def _on_last(self) -> None:
        """Up: the last prompt is edited where it stands."""
        if not self.columns.edit_last():
            self.composer.fill(self.composer.edit.history[-1] if self.composer.edit.history else "")

    def _on_stop(self) -> None:
        if self.branches is not None:
            self.talk.stop(list(self.branches.tree.turns.values()))

    def _on_ended(self, turn: Turn) -> None:
        self.columns.grow(turn)
        self._tell_answering()

    def _on_inside(self, place: int, turn: Turn) -> None:
        self.inside_asked.emit(Path(turn.facts.run) if turn.facts.run else None, turn.facts.request)

    # -- how it is answered ---------------------------------------------------------------------------------------

    def show_presets(self) -> None:
        from app.chat.presets.dialog import PresetDialog

        card = self._session.card
        adapters = card.adapters if card is not None else ()
        dialog = PresetDialog(self.window(), self.presets, self.composer.columns[0].name, adapters)
        dialog.changed.connect(lambda: self.composer.offer(self.presets.all()))
        dialog.open()

    def _on_columns(self) -> None:
        names, beside = [choice.currentData() for choice in self.composer.choices], self.composer.beside.isChecked()
        storage.keep(COLUMNS_KEY, names)
        if not beside:
            self.second.choose(None)
        if self.branches is not None:
            conversation = self.branches.conversation
            conversation.columns, conversation.beside = tuple(names), beside
            self.branches.keep()
        self._show()

    def _kept_columns(self) -> list[str]:
        kept = [str(name) for name in storage.kept_list(COLUMNS_KEY)]
        return kept if len(kept) == COLUMNS else [preset.name for preset in self.presets.all()[:COLUMNS]]

    def _offer_models(self) -> None:
        recent = [entry.spec for entry in self._recents.entries]
        card = self._session.card
        held = "none" if card is None else card.quantization
        self.columns.offer_models(choices(self._session.spec, recent, held), self.second.spec)

    def _on_second_failed(self, words: str) -> None:
        self.notice.tell("error", tr("The second model was not loaded"), words)

    def _tell_second(self) -> None:
        self.columns.show_model(self.second)
        self.composer.set_answerable(self.second.ready)

    def _histories(self) -> list[list[Turn]]:
        branches = self.branches
        return [branches.path(i) if branches is not None else [] for i in range(COLUMNS)]

    # -- inside ---------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        """What is on show is as the conversation stands."""
        branches = self.branches
        self._middle.setCurrentWidget(self.welcome if branches is None else self.columns)
        names = [preset.name for preset in self.composer.columns]
        if branches is not None:
            self.columns.show_branches(branches, names)
        self._tell_answering()
        self.composer.recount()

    def _tell_answering(self) -> None:
        turns = self.branches.tree.turns.values() if self.branches is not None else ()
        self.composer.set_answering(any(self.talk.writes(turn) for turn in turns))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def _place(self) -> None:
        self.list.setFixedWidth(max(theme.px(LEAST), min(theme.px(LIST), round(self.width() * SHARE))))
