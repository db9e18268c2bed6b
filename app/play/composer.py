"""The composer: a prompt, how many of it, and Send."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QAction, QColor, QKeySequence
from PySide6.QtWidgets import QFrame, QPushButton

from app import storage
from app.language import tr, trn
from app.play.prompts import Draft, guessed
from app.play.written import Written
from app.playback.bridge import Bridge
from app.preferences import KEEP_PROMPTS, SEND_KEY
from app.session.session import Session, SessionState
from app.ui.controls import Number, button
from app.ui.labels import Hairline, Note, label, set_role
from app.ui.layout.boxes import column, held, panel, row
from app.ui.line import Line
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.prompt_edit import PromptEdit
from app.ui.sheets.ask_path import ask_path
from app.words import sentence
from engine import InvalidInput, SamplingParams
from engine.config import Prompt
from engine.jobs import engine_missing
from engine.trace import ModelCard
from engine.workloads import Arrival, counter_for, read_prompts

DEFAULT_PROMPT = "Tell me a story about a {fox|whale|dragon|robot} and a {lantern|violin|kite|piano}."
DEFAULT_COUNT = 16
FILE, FILE_SAID = tr("Take prompts from a file: a line each, JSON, or a workload"), tr("Take prompts from a file")
COMPRESS = tr("Compress the prompt: strike out what says the least, and see what that changes")
SYSTEM = tr("Begin every chat with these instructions")
CHAT = tr("Put the prompt into the model's chat template; off: as it stands")
BACK = tr("Click to go back to the written prompt")
FILE_TITLE = tr("Open a file of prompts")
LARGE = 1.75  # of the zoom
DROPPED = "  ✕"  # behind the name of a file whose prompts are sent
ENDINGS = "*.txt *.jsonl *.json *.toml *.md *.prompts"
FILES = (tr("Prompts ({endings})", endings=ENDINGS), tr("All files (*)"))


def toggle(name: str, text: str, tip: str) -> QPushButton:
    """A quiet button that is on or off; a tick says which."""
    made = button(name, text, role="quiet", tip=tip, said=text, checkable=True)
    made.setAccessibleDescription(tip)
    made.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # who clicks it goes on writing
    made.toggled.connect(lambda on: made.setText(f"✓ {text}" if on else text))
    return made


class Mistake(Line):
    def color(self) -> QColor:
        return theme.current().bad


class Composer(QFrame):
    """Turns what is written into submissions and sends them through the session. The text stays after sending."""

    path_dropped = Signal(object)  # Path: a prompt file or a model folder
    compression_asked = Signal(object)  # Prompt
    undoable = Signal(str, object, object)  # what was replaced, in words; what brings it back, and replaces it again
    small = Face(12)

    def __init__(
        self,
        session: Session,
        bridge: Bridge,
        params: Callable[[], SamplingParams],
        turns: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        super().__init__()
        self.setObjectName("composer")
        self.setProperty("role", "panel")
        self._session, self._bridge, self._params, self._turns = session, bridge, params, turns
        self._file: tuple[Arrival, ...] = ()
        self._count: Callable[[str], float] = guessed  # tokens of a text, as the loaded model has them
        self.prompt = PromptEdit("composer_prompt")
        self.prompt.setAccessibleName(tr("Prompt"))
        self.prompt.hint(tr("Write a prompt. {fox|owl} stands for either word."), tr("Write a prompt."))
        self.system = PromptEdit("composer_system", 1, 4)
        self.system.setAccessibleName(tr("System prompt"))
        self.system.hint(tr("How the model should behave"))
        self.summary = Line("composer_summary", size=12)
        self.message = Mistake("composer_message", size=12)
        self.message.hide()
        self.long_message = Note("composer_long_message", "error")
        self.use_system = toggle(
            "composer_use_system", tr("System prompt"), tr("Begin every chat with these instructions")
        )
        self.chat = toggle(
            "composer_chat", tr("Chat"), tr("Put the prompt into the model's chat template; off: as it stands")
        )
        self.each_line = toggle("composer_each_line", tr("One a line"), tr("Every line is a prompt of its own"))
        self.file = button("composer_file", tr("File …"), self.choose_file, role="quiet", tip=FILE, said=FILE_SAID)
        self.compress = button("composer_compress", act=self.ask_compression, role="quiet", tip=COMPRESS, said=COMPRESS)
        self.drop_file = button("composer_drop_file", act=self._on_drop_file, role="quiet")
        self.drop_file.hide()
        self.count = Number("composer_count", 1, 256, DEFAULT_COUNT)
        self.count.setPrefix("×  ")
        self.count.setAccessibleName(tr("How many times"))
        self.count.setToolTip(tr("How many requests to make of each prompt"))
        self.count.setKeyboardTracking(True)
        self.send_button = button("composer_send", tr("Send   Ctrl ⏎"), self.send, role="primary", said=tr("Send"))
        self.stop_button = button(
            "composer_stop", tr("Stop"), lambda: session.stop(), tip=tr("Stop every request (Esc)")
        )
        self.send_action = QAction(tr("Send"), self)
        self.send_action.setShortcuts([QKeySequence("Ctrl+Return"), QKeySequence("Ctrl+Enter")])
        self.stop_action = QAction(tr("Stop all requests"), self)
        self._lay_out()
        self._connect()
        self._recall()
        self._on_state(session.state)
        self._on_busy(bridge.busy)

    def _lay_out(self) -> None:
        name = label(tr("System"), "note")
        name.setContentsMargins(0, 3, 0, 0)  # on the line of the text beside it
        system = row((name, 0, Qt.AlignmentFlag.AlignTop), (self.system, 1), spacing=8)
        self.system_row = held(column(system, Hairline(), margins=(0, 0, 0, 4), spacing=4))
        quiet = self.use_system, self.chat, self.each_line, self.file, self.compress
        foot = row(self.drop_file, (self.summary, 1), (self.message, 1), *quiet, spacing=2)
        parts = self.system_row, self.prompt, self.long_message, foot
        self.field = panel(column(*parts, margins=(12, 8, 8, 6), spacing=4), "field")
        self.field.setFocusPolicy(Qt.FocusPolicy.ClickFocus)  # wherever it is clicked
        self.field.setFocusProxy(self.prompt)
        middle = Qt.AlignmentFlag.AlignVCenter
        beside = ((widget, 0, middle) for widget in (self.count, self.stop_button, self.send_button))
        self.setLayout(row((self.field, 1), 4, *beside, margins=(12, 12, 12, 12), spacing=8))

    def _connect(self) -> None:
        self._telling = QTimer(self, singleShot=True, interval=30)
        self._telling.timeout.connect(self._tell)
        for signal in (self.prompt.textChanged, self.system.textChanged, self.count.valueChanged):
            signal.connect(self._on_edited)
        for choice in (self.use_system, self.chat, self.each_line):
            choice.toggled.connect(self._on_edited)
        self.use_system.toggled.connect(self._on_use_system)
        for edit in (self.prompt, self.system):
            edit.file_dropped.connect(self.path_dropped)
            edit.focus_changed.connect(self._on_focus)
        self.send_action.triggered.connect(self.send)
        self.stop_action.triggered.connect(self.stop_button.click)
        self._session.state_changed.connect(self._on_state)
        self._session.model_loaded.connect(self._on_loaded)
        self._session.submit_failed.connect(lambda message: self._complain(sentence(message)))
        self._session.submitted.connect(lambda ids: self._complain(""))
        self._bridge.busy_changed.connect(self._on_busy)
        self.prompt.entered.connect(self.send)
        SEND_KEY.on_change(self._on_send_key, self)
        KEEP_PROMPTS.on_change(self._keep_history, self)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()
        self._on_send_key()

    # -- what is written ------------------------------------------------------------------------------------------

    def draft(self) -> Draft:
        return Draft(
            text=self.prompt.toPlainText(),
            count=self.count.value(),
            each_line=self.each_line.isChecked(),
            file=self._file,
            system=self.system.toPlainText().strip() if self.use_system.isChecked() else "",
            chat=self.chat.isChecked(),
        )

    def send(self) -> None:
        """Sends the draft. What is wrong with it is said below the text, which stays."""
        draft = self.draft()
        try:
            submissions = draft.submissions(self._params(), self._turns())
        except InvalidInput as error:
            self._complain(sentence(str(error)))
            return
        self._complain("")
        self.prompt.remember(draft.text)
        self._keep()
        self._session.send(submissions)

    def choose_file(self) -> None:
        """Asks for a file of prompts."""
        ask_path(self, "prompt_file_dialog", FILE_TITLE, "composer/folder", self.open_file, FILES)

    def open_file(self, path: str | Path) -> None:
        """Takes a file's prompts in place of the written ones: lines of text, JSON, or a workload's."""
        path = Path(path)
        try:
            card = self._session.card
            prompts = read_prompts(path, chat=True, model_folder=card.source if card else None)
        except InvalidInput as error:
            self._complain(sentence(str(error)))
            return
        storage.settings().setValue("composer/folder", str(path.parent))
        with self._replacing(tr("took prompts from {name}", name=path.name)):
            self.take(path.name, prompts)
        self.drop_file.setToolTip(f"{path}\n{BACK}")

    @property
    def file_name(self) -> str:
        """Whose prompts are sent in place of the written one; "" where none are."""
        return self.drop_file.text().removesuffix(DROPPED)

    def take(self, name: str, prompts: Sequence[Arrival]) -> None:
        """These prompts, as they are, in place of the written one; `name` says whose they are."""
        self._file = tuple(prompts)
        self.drop_file.setText(f"{name}{DROPPED}")
        self.drop_file.setAccessibleName(tr("Do not use {name}", name=name))
        self.drop_file.setToolTip(BACK)
        self.count.setValue(1)
        self._show_file()

    def ask_compression(self) -> None:
        """Of the prompt that is written, or of the first where there are several."""
        try:
            (first, *_) = replace(self.draft(), count=1).submissions(self._params())
        except InvalidInput as error:
            self._complain(sentence(str(error)))
            return
        self.compression_asked.emit(first.prompt)

    def use(self, prompt: Prompt) -> None:
        """Takes a prompt in place of what is written, which undo brings back; a conversation as it is."""
        with self._replacing(tr("took the compressed prompt")):
            self._use(prompt)
        self.prompt.setFocus()

    def _use(self, prompt: Prompt) -> None:
        messages = [part for part in prompt if isinstance(part, dict)]
        *system, last = messages or [{"role": "user", "content": str(prompt)}]
        if self._file or [m["role"] for m in system] not in ([], ["system"]) or last["role"] != "user":
            self.use_system.setChecked(False)  # it has its own
            self.take(tr("compressed prompt"), [Arrival(0.0, prompt)])
            return
        if self.chat.isEnabled():
            self.chat.setChecked(bool(messages))
        self.each_line.setChecked(False)
        self.prompt.replace_text(last["content"])
        if system:
            self.use_system.setChecked(True)
            self.system.replace_text(system[0]["content"])
        elif messages:
            self.use_system.setChecked(False)

    @contextmanager
    def _replacing(self, words: str) -> Iterator[None]:
        """What is done within takes the place of what was there, which can come back."""
        before = self._written()
        yield
        after = self._written()
        if after != before:
            self.undoable.emit(words, lambda: self._put_back(before), lambda: self._put_back(after))

    def _written(self) -> Written:
        texts = self.prompt.toPlainText(), self.system.toPlainText()
        switches = self.use_system.isChecked(), self.chat.isChecked(), self.each_line.isChecked()
        return Written(*texts, *switches, self.count.value(), self.file_name, self._file)

    def _put_back(self, written: Written) -> None:
        self.take(written.name, written.prompts)
        for field, text in ((self.prompt, written.prompt), (self.system, written.system)):
            if field.toPlainText() != text:
                field.replace_text(text)
        self.use_system.setChecked(written.use_system)
        if self.chat.isEnabled():
            self.chat.setChecked(written.chat)
        self.each_line.setChecked(written.each_line)
        self.count.setValue(written.count)

    # -- slots ----------------------------------------------------------------------------------------------------

    def _on_drop_file(self) -> None:
        with self._replacing(tr("put {name} away", name=self.file_name)):
            self.take("", ())
        self.prompt.setFocus()

    def _show_file(self) -> None:
        """While prompts come from a file, the written one waits."""
        self.drop_file.setVisible(bool(self._file))
        for written in (self.prompt, self.each_line):
            written.setEnabled(not self._file)
        self._on_edited()

    def _on_edited(self) -> None:
        self._complain("")
        self._telling.start()

    def _complain(self, words: str) -> None:
        """In the place of the summary: nothing moves. What is too long for it has lines of its own, since what would
        help stands at its end."""
        fits = self.small.width(words) <= self.summary.width()
        self.message.say(words)
        self.message.setVisible(bool(words) and fits)
        self.long_message.say("" if fits else words)
        self.summary.setVisible(not self.message.isVisibleTo(self))

    def _tell(self) -> None:
        draft = self.draft()
        words, count = draft.summary(self._count), trn("{count:,} prompt", "{count:,} prompts", draft.total)
        if self._file:
            self.summary.say(tr("Sends the file's prompts, not the text: {prompts}", prompts=words), words, count)
        else:
            self.summary.say(words, *((words.partition(" · ")[0], count) if draft.total > 1 else ()))

    def _on_use_system(self, on: bool) -> None:
        self.system_row.setVisible(on)
        if on:
            self.system.setFocus()

    def _on_focus(self, focused: bool) -> None:
        self.field.setProperty("focused", focused)
        set_role(self.field, "field")

    def _on_state(self, state: SessionState) -> None:
        self.send_button.setEnabled(state is SessionState.READY)
        waiting = {SessionState.LOADING: tr("The model is loading")}
        waiting[SessionState.EMPTY] = sentence(engine_missing()) or tr("Load a model first")
        waiting[SessionState.DIED] = tr("The engine has died: restart it first")
        self.send_button.setToolTip(waiting.get(state, tr("Send (Ctrl+Enter)")))
        if state in (SessionState.READY, SessionState.LOADING):
            self._complain("")

    async def _learn_to_count(self, source: str) -> None:
        """With the model's own tokenizer, where it is at hand."""
        try:
            counter = await self._session.off_thread(lambda: counter_for(source))
        except InvalidInput:
            counter = None
        self._count = counter.count if counter is not None and counter.exact else guessed
        self._telling.start()

    def _on_loaded(self, card: ModelCard) -> None:
        self._session.start(self._learn_to_count(card.source))
        self.chat.setEnabled(card.chat)
        if not card.chat:
            self.chat.setChecked(False)
            self.chat.setToolTip(tr("{model} has no chat template: prompts go in as they stand", model=card.name))
        elif not self.chat.isChecked() and storage.settings().value("composer/chat", "true") == "true":
            self.chat.setChecked(True)

    def _on_theme(self) -> None:
        """At twice the size there is no room for another word on a projector."""
        self.compress.setText(tr("Compress …") if theme.zoom() < LARGE else "✂")
        self._on_send_key()

    def _on_send_key(self) -> None:
        self.prompt.enter_sends = SEND_KEY.value == "enter"
        keyed = tr("Send   ⏎") if self.prompt.enter_sends else tr("Send   Ctrl ⏎")
        self.send_button.setText(keyed if theme.zoom() < LARGE else tr("Send"))

    def _on_busy(self, busy: bool) -> None:
        self.stop_button.setEnabled(busy)
        self.stop_action.setEnabled(busy)

    # -- remembered between starts --------------------------------------------------------------------------------

    def _keep_history(self) -> None:
        """What was sent, where it may be kept."""
        kept = storage.settings()
        if KEEP_PROMPTS.value:
            kept.setValue("composer/history", json.dumps(self.prompt.history))
            kept.setValue("composer/system", self.system.toPlainText())
        else:
            kept.remove("composer/history")
            kept.remove("composer/system")

    def _keep(self) -> None:
        self._keep_history()
        kept = storage.settings()
        kept.setValue("composer/count", self.count.value())
        kept.setValue("composer/use_system", self.use_system.isChecked())
        if self.chat.isEnabled():
            kept.setValue("composer/chat", "true" if self.chat.isChecked() else "false")

    def _recall(self) -> None:
        def kept(key: str, default: object) -> str:
            return str(storage.settings().value(f"composer/{key}", default))

        try:
            history = [text for text in json.loads(kept("history", "[]")) if isinstance(text, str)]
        except (ValueError, TypeError):
            history = []
        self.prompt.recall(history)
        self.prompt.setPlainText(history[-1] if history else DEFAULT_PROMPT)
        self.count.setValue(int(kept("count", DEFAULT_COUNT)))
        self.system.setPlainText(kept("system", ""))
        self.use_system.setChecked(kept("use_system", "false") == "true")
        self.system_row.setVisible(self.use_system.isChecked())
        self.chat.setChecked(kept("chat", "true") == "true")
        self._tell()
