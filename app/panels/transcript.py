"""One request whole: what was asked, everything it has said so far, its numbers, and what can be done with it."""

from __future__ import annotations

import asyncio
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication, QResizeEvent, QShowEvent, QTextBlockFormat, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import (
    QBoxLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QStackedLayout,
    QVBoxLayout,
    QWidget,
)

from app import theme
from app.bridge import Bridge
from app.panels.request_words import duration, number, state_color, state_words
from app.session import Session
from app.widgets.labels import Note, label
from engine import Ended, Record, RequestView, State, Step, Submitted, request_metrics

EMPTY = "Select a stream to read it whole."
WIDE = 860  # from here on, name and numbers share a line
ROLES = {"user": "You", "assistant": "Answer", "system": "System"}


def metrics_line(view: RequestView) -> str:
    """The request's numbers so far, in words."""
    metrics = request_metrics(view)
    parts = [f"{metrics.prompt_tokens:,} tokens in", f"{metrics.output_tokens:,} of {view.params.max_tokens:,} out"]
    for name, value in (("TTFT", metrics.ttft), ("TPOT", metrics.tpot), ("E2E", metrics.e2e)):
        if value is not None:
            parts.append(f"{name} {duration(value)}")
    rate = view.tokens_per_second
    if rate is not None:
        parts.append(f"{number(rate)} tok/s")
    if view.preemptions:
        parts.append(f"preempted {view.preemptions} ×")
    return "  · ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)


class Transcript(QWidget):
    """Shows `request`, None until one is chosen. Text comes once a frame; the place read stays unless at the end."""

    request_created = Signal(int)  # a follow-up or regeneration made this request

    def __init__(self, bridge: Bridge, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("transcript")
        self.bridge, self.session = bridge, session
        self.request: int | None = None
        self._wanted: int | None = None
        self._length = 0
        self._stale = False
        self.name = QLabel()
        self.name.setObjectName("transcript_name")
        self.name.setTextFormat(Qt.TextFormat.RichText)
        self.numbers = label("", "note", "transcript_metrics")
        self.numbers.setWordWrap(True)
        self.numbers.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.text = QPlainTextEdit()
        self.text.setObjectName("transcript_text")
        self.text.setAccessibleName("Transcript")
        self.text.setReadOnly(True)
        self.text.setUndoRedoEnabled(False)
        self.text.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.error = Note("transcript_error", "error")
        self.copy_button = self._button("Copy", "Copy the answer", self._on_copy)
        self.again_button = self._button("Regenerate", "The same prompt again with a fresh seed", self._on_regenerate)
        self.stop_button = self._button("Stop", "Stop this stream; its text stays", self._on_stop)
        self.follow_up = QLineEdit()
        self.follow_up.setObjectName("follow_up")
        self.follow_up.setAccessibleName("Follow up")
        self.follow_up.returnPressed.connect(self._on_follow_up)
        self.send_button = QPushButton("Send")
        self.send_button.setObjectName("follow_up_send")
        self.send_button.clicked.connect(self._on_follow_up)
        self._titles = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._titles.setSpacing(4)
        self._titles.addWidget(self.name)
        self._titles.addWidget(self.numbers, 1)
        head = QHBoxLayout()
        head.addLayout(self._titles, 1)
        for button in (self.copy_button, self.again_button, self.stop_button):
            head.addWidget(button)
        foot = QHBoxLayout()
        foot.addWidget(self.follow_up, 1)
        foot.addWidget(self.send_button)
        page = QWidget()
        column = QVBoxLayout(page)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addLayout(head)
        column.addWidget(self.text, 1)
        column.addWidget(self.error)
        column.addLayout(foot)
        empty = label(EMPTY, "secondary", "transcript_empty")
        empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        empty.setWordWrap(True)
        self._pages = QStackedLayout(self)
        self._pages.addWidget(empty)
        self._pages.addWidget(page)
        self.follow_up.textChanged.connect(self._tell_state)
        bridge.records_arrived.connect(self._on_records)
        bridge.trace_reset.connect(self._on_reset)
        session.state_changed.connect(self._tell_state)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()

    def _button(self, text: str, tip: str, act: Any) -> QPushButton:
        button = QPushButton(text)
        button.setObjectName(f"transcript_{text.lower()}")
        button.setProperty("role", "quiet")
        button.setToolTip(tip)
        button.clicked.connect(act)
        return button

    @property
    def view(self) -> RequestView | None:
        return self.bridge.requests.get(self.request) if self.request is not None else None

    def select(self, request: int | None) -> None:
        """Shows a request, or as soon as it arrives; None or -1 shows none."""
        self._wanted = None
        if request is not None and request >= 0 and request not in self.bridge.requests:
            self._wanted = request
            return
        request = request if request is not None and request >= 0 else None
        if request != self.request:
            self.request = request
            self.follow_up.clear()
            self._rewrite()

    def ask(self) -> None:
        """Puts the cursor where a follow-up is written."""
        self.follow_up.setFocus(Qt.FocusReason.ShortcutFocusReason)

    # -- the text -------------------------------------------------------------------------------------------------

    def _rewrite(self) -> None:
        """The whole text anew."""
        view = self.view
        self._pages.setCurrentIndex(0 if view is None else 1)
        self.text.clear()
        self._length = 0
        if view is None:
            return
        for message in view.messages:
            self._write(ROLES.get(message.get("role", ""), message.get("role", "")), "role")
            self._write(str(message.get("content", "")), "asked")
        if view.messages:
            self._write("Answer", "role")
            self._write("", "said")
        else:
            self._write(view.prompt, "asked")
        self._append(view)
        self._tell_state()

    def _format(self, kind: str) -> QTextCharFormat:
        t = theme.current()
        result = QTextCharFormat()
        if kind == "role":
            result.setFont(theme.ui(11, 600))
            result.setForeground(t.secondary)
        else:
            result.setFont(theme.mono(13))
            result.setForeground(t.secondary if kind == "asked" else t.text)
        return result

    def _write(self, text: str, kind: str) -> None:
        """A new paragraph at the end."""
        cursor = QTextCursor(self.text.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        if not self.text.document().isEmpty():
            if kind == "role":
                cursor.insertBlock(QTextBlockFormat(), self._format("role"))
            cursor.insertBlock(QTextBlockFormat(), self._format(kind))
        cursor.insertText(text, self._format(kind))

    def _append(self, view: RequestView) -> None:
        """What has been said since the last call, as one insertion; a selection and the place read stay."""
        text = view.text
        if len(text) == self._length:
            return
        bar = self.text.verticalScrollBar()
        at_end, value = bar.value() >= bar.maximum(), bar.value()
        cursor = QTextCursor(self.text.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText(text[self._length :], self._format("said"))
        self._length = len(text)
        bar.setValue(bar.maximum() if at_end else value)

    def _tell_state(self, *changed: object) -> None:
        view = self.view
        if view is None:
            return
        t = theme.current()
        over = view.state is State.FINISHED
        color, words = theme.request_color(view.request).name(), state_words(view)
        name = (
            f'<span style="color:{color}">●</span>&nbsp; <b>{view.request}</b>&nbsp; '
            f'<span style="color:{state_color(view, t).name()}">{words}</span>'
        )
        if name != self.name.text():
            self.name.setText(name)
            self.name.setAccessibleName(f"Stream {view.request}, {words}")
        numbers = metrics_line(view)
        if numbers != self.numbers.text():
            self.numbers.setText(numbers)
        self.error.say(view.error)
        ready = self.session.ready
        self.stop_button.setEnabled(not over and ready)
        self.again_button.setEnabled(ready)
        self.copy_button.setEnabled(bool(view.text))
        self.follow_up.setEnabled(over and ready)
        self.send_button.setEnabled(over and ready and bool(self.follow_up.text().strip()))
        if not over:
            hint = "A follow-up can be sent when this stream has finished"
        elif view.messages:
            hint = "Follow up on this answer"
        else:
            hint = "Go on with this text"
        self.follow_up.setPlaceholderText(hint)

    def _on_records(self, records: list[Record]) -> None:
        if self._wanted is not None and any(isinstance(r, Submitted) and r.request == self._wanted for r in records):
            self.select(self._wanted)
            return
        view = self.view
        if view is None or not any(
            (isinstance(r, Step) and (view.request in r.request or view.request in r.preempted))
            or (isinstance(r, Ended) and r.request == view.request)
            for r in records
        ):
            return
        if not self.isVisible():
            self._stale = True
            return
        self._append(view)
        self._tell_state()

    def _on_reset(self, trace: object) -> None:
        self.request = self._wanted = None
        self._rewrite()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        wide = self.width() >= theme.px(WIDE)
        self._titles.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)
        self._titles.setSpacing(16 if wide else 4)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        view = self.view
        if self._stale and view is not None:
            self._stale = False
            self._append(view)
            self._tell_state()

    # -- what can be done -----------------------------------------------------------------------------------------

    def _on_copy(self) -> None:
        view = self.view
        if view is not None:
            QGuiApplication.clipboard().setText(view.text)

    def _on_stop(self) -> None:
        if self.request is not None:
            self.session.stop([self.request])

    def _on_regenerate(self) -> None:
        if self.request is not None:
            self.session.regenerate(self.request).add_done_callback(self._on_created)

    def _on_follow_up(self) -> None:
        text = self.follow_up.text().strip()
        if self.request is not None and text and self.send_button.isEnabled():
            self.session.continue_chat(self.request, text).add_done_callback(self._on_created)
            self.follow_up.clear()

    def _on_created(self, task: asyncio.Task[list[int]]) -> None:
        if not task.cancelled() and task.exception() is None and task.result():
            self.request_created.emit(task.result()[0])

    def _on_theme(self) -> None:
        self.text.setFont(theme.mono(13))
        self._rewrite()
