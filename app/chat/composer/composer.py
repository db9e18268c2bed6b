"""The chat's composer: a prompt with its files, the preset it is answered by, and whether all of it fits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QColor, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QWidget

from app.chat.composer.chips import FileChips
from app.chat.composer.counting import Counting
from app.chat.composer.edit import ChatEdit
from app.chat.composer.files import read_text
from app.chat.composer.room import Room
from app.chat.store.presets import Preset
from app.chat.store.tree import Attachment, Role, Turn, messages
from app.language import tr
from app.session.session import Session, SessionState
from app.ui.controls import DropDown, button
from app.ui.labels import Note, set_role
from app.ui.layout.boxes import column, fill, named, panel, row
from app.ui.layout.flow import Flow
from app.ui.line import Line
from app.ui.look import theme
from app.ui.sheets.ask_path import ask_path
from app.words import sentence
from engine import InvalidInput
from engine.config import Message

HINTS = tr("Write a prompt. Enter sends it, Shift+Enter begins a line."), tr("Write a prompt.")
BESIDE = tr("Answer every prompt twice, side by side, each by its own preset")
SIDE_BY_SIDE, ADD_FILE = tr("Side by side"), tr("Add a text file")
ENDINGS = "*.txt *.md *.csv *.json *.toml *.py *.log"
FILES = (tr("Text ({endings})", endings=ENDINGS), tr("All files (*)"))
COLUMNS = "AB"
MOST_FILES = 20
WIDE, WIDE_BESIDE = 640, 760  # from here on, the count and what can be chosen are on one line


class Gauge(Line):
    """The count of tokens; `tight`: little room is left."""

    tight = False

    def color(self) -> QColor:
        return theme.current().warn if self.tight else theme.current().secondary

    def tell(self, room: Room | None) -> None:
        self.tight = room is not None and room.tight
        self.say("" if room is None else room.words, *([] if room is None else [room.short]))
        self.update()


class ChatComposer(QFrame):
    """`histories` are the paths that the columns would go on from."""

    sent = Signal(str, object)  # text, files
    stop_asked = Signal()
    last_asked = Signal()
    presets_asked = Signal()
    columns_changed = Signal()  # another preset, or one column more or less

    def __init__(self, session: Session, counting: Counting, histories: Callable[[], Sequence[list[Turn]]]) -> None:
        super().__init__()
        named(self, "chat_composer", "panel")
        self._session, self._counting, self._histories = session, counting, histories
        self.presets: list[Preset] = []
        self.room: Room | None = None
        self.answering, self._answerable = False, True
        self._adding = asyncio.Lock()
        self.edit = ChatEdit("chat_prompt", 1, 8)
        self.edit.setAccessibleName(tr("Prompt"))
        self.edit.hint(*HINTS)
        self.files = FileChips()
        self.gauge = Gauge("chat_gauge", size=12)
        self.error = Note("chat_error", "error")
        self.choices = [
            DropDown(f"chat_preset_{name.lower()}", said=tr("Preset of {name}", name=name), most=220)
            for name in COLUMNS
        ]
        self.beside = button("chat_beside", SIDE_BY_SIDE, role="quiet", tip=BESIDE, checkable=True)
        self.beside.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # who clicks it goes on writing
        edit_presets = tr("Change, make and delete presets")
        self.more = button("chat_presets", tr("Presets …"), self.presets_asked, role="quiet", tip=edit_presets)
        add = tr("Add text files to the prompt, or drop them here")
        self.add = button("chat_add_file", tr("File …"), self.choose_files, role="quiet", tip=add, said=ADD_FILE)
        self.send_button = button("chat_send", tr("Send"), self.send, role="primary")
        stops = tr("Stop the answer; what it says stays (Esc)")
        self.stop_button = button("chat_stop", tr("Stop"), self.stop_asked, tip=stops)
        self._lay_out()
        self._connect()
        self._tell_state()

    def _lay_out(self) -> None:
        self._foot = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        deeds = QWidget()
        flow = Flow(deeds)
        flow.gap = 4
        for deed in (*self.choices, self.more, self.beside, self.add):
            flow.addWidget(deed)
        fill(self._foot, (self.gauge, 1), deeds, spacing=4)
        self.field = panel(
            column(self.files, self.edit, self.error, self._foot, margins=(12, 8, 8, 6), spacing=6), "field"
        )
        self.field.setFocusProxy(self.edit)
        middle = Qt.AlignmentFlag.AlignVCenter
        beside = (self.stop_button, 0, middle), (self.send_button, 0, middle)
        self.setLayout(row((self.field, 1), 4, *beside, margins=(12, 12, 12, 12), spacing=8))

    def _connect(self) -> None:
        self.edit.sent.connect(self.send)
        self.edit.last_asked.connect(self.last_asked)
        self.edit.file_dropped.connect(self.add_file)
        self.edit.focus_changed.connect(self._on_focus)
        self.edit.textChanged.connect(self.recount)
        self.files.changed.connect(self.recount)
        self._counting.changed.connect(self.recount)
        self._session.state_changed.connect(self._tell_state)
        self.beside.toggled.connect(self._on_beside)
        for choice in self.choices:
            choice.activated.connect(self._on_chosen)

    # -- how it is answered ---------------------------------------------------------------------------------------

    @property
    def columns(self) -> list[Preset]:
        """The presets of the columns that answer."""
        chosen = [self._preset(choice.currentData()) for choice in self.choices]
        return chosen if self.beside.isChecked() else chosen[:1]

    def _preset(self, name: object) -> Preset:
        return next((preset for preset in self.presets if preset.name == name), self.presets[0])

    def offer(self, presets: Sequence[Preset]) -> None:
        """Presets to choose from; those that are chosen stay so where they are still there."""
        self.presets = list(presets)
        for place, choice in enumerate(self.choices):
            name = choice.currentData() or self.presets[min(place, len(self.presets) - 1)].name
            choice.clear()
            for preset in self.presets:
                choice.addItem(preset.name, preset.name)
            choice.set_value(name)
        self.recount()

    def show_columns(self, names: Sequence[str], *, beside: bool) -> None:
        """How a conversation is answered, and tells nobody."""
        for choice, name in zip(self.choices, names):
            choice.set_value(name)
        blocked = self.beside.blockSignals(True)
        self.beside.setChecked(beside)
        self.beside.blockSignals(blocked)
        self._show_beside()
        self.recount()

    def _on_beside(self) -> None:
        self._show_beside()
        self._on_chosen()

    def _show_beside(self) -> None:
        on = self.beside.isChecked()
        self.beside.setText(f"✓ {SIDE_BY_SIDE}" if on else SIDE_BY_SIDE)
        self.choices[1].setVisible(on)

    def _on_chosen(self) -> None:
        self.columns_changed.emit()
        self.recount()

    # -- what is written ------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Hands on what is written, and is empty; what is wrong with it is said, and it stays."""
        text, files = self.edit.toPlainText().strip(), list(self.files.files)
        if not (text or files) or not self.send_button.isEnabled():
            return
        if self.room is not None and self.room.too_long:
            self.error.say(self.room.too_long)
            return
        self.edit.remember(text)
        self.edit.clear()
        self.files.show_files([])
        self.sent.emit(text, files)

    def fill(self, text: str) -> None:
        """This in place of what is written, which undo brings back."""
        self.edit.replace_text(text)
        self.edit.setFocus()

    def choose_files(self) -> None:
        ask_path(self, "chat_file_dialog", ADD_FILE, "chat/folder", self.add_file, FILES)

    def add_file(self, path: str | Path) -> None:
        """Reads a text file and counts it, in a thread; what cannot be taken is said."""
        self._session.start(self._add(Path(path)))

    async def _add(self, path: Path) -> None:
        async with self._adding:  # those that are dropped together keep their order
            await self._take(path)

    async def _take(self, path: Path) -> None:
        if len(self.files.files) >= MOST_FILES:
            words = tr("{name} is one too many: a prompt takes {most} files", name=path.name, most=MOST_FILES)
            self.error.say(words)
            return
        try:
            text = await self._session.off_thread(lambda: read_text(path))
        except InvalidInput as error:
            self.error.say(sentence(str(error)))
            return
        tokens = await self._counting.count(text)
        self.files.show_files([*self.files.files, Attachment(path.name, text, tokens)])
        self.edit.setFocus()

    # -- whether it fits ------------------------------------------------------------------------------------------

    def recount(self) -> None:
        """What is written, or what it goes on from, is another."""
        self.room = None
        self.error.say("")
        if not (self.edit.toPlainText().strip() or self.files.files) or not self.presets:
            self._counting.close()
            self.gauge.tell(None)
            return
        self._counting.ask(self._longest, self._on_counted)

    def _longest(self) -> list[Message]:
        """The messages of the column that has most to read."""
        draft = Turn(0, None, Role.USER, self.edit.toPlainText().strip(), tuple(self.files.files))
        told = [messages([*path, draft], column.system) for path, column in zip(self._histories(), self.columns)]
        return max(told, key=lambda each: sum(len(m["content"]) for m in each))

    def _on_counted(self, draft: int, least: int, most: int) -> None:
        counting = self._counting
        answer = max(preset.params.max_tokens for preset in self.columns)
        room = self.room = Room(draft, least, most, counting.context, answer, counting.exact)
        self.error.say(room.too_long)
        self.gauge.tell(room)

    # -- state ----------------------------------------------------------------------------------------------------

    def set_answering(self, answering: bool) -> None:
        """Whether an answer of this conversation is under way: it is stopped, or awaited, before the next prompt."""
        self.answering = answering
        self._tell_state()

    def set_answerable(self, answerable: bool) -> None:
        """Whether the model of the second column is there."""
        self._answerable = answerable
        self._tell_state()

    def _tell_state(self, *changed: object) -> None:
        state = self._session.state
        waiting = {
            SessionState.LOADING: tr("The model is loading"),
            SessionState.EMPTY: tr("Load a model first"),
            SessionState.DIED: tr("The engine has died: restart it first"),
            SessionState.LEASED: tr("A race is running: stop it on the Compare page first"),
        }
        ready = state is SessionState.READY
        self.send_button.setEnabled(ready and self._answerable and not self.answering)
        words = tr("The answer is under way") if self.answering else tr("Send (Enter)")
        words = words if self._answerable else tr("The second model is loading")
        self.send_button.setToolTip(waiting.get(state, words))
        self.stop_button.setEnabled(self.answering)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """What does not fit beside the count stands below it."""
        super().resizeEvent(event)
        ways = QBoxLayout.Direction
        wide = WIDE_BESIDE if self.beside.isChecked() else WIDE
        self._foot.setDirection(ways.LeftToRight if self.width() >= theme.px(wide) else ways.TopToBottom)

    def _on_focus(self, focused: bool) -> None:
        self.field.setProperty("focused", focused)
        set_role(self.field, "field")
