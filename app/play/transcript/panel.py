"""One request whole: what was asked, everything it has said so far, its numbers, and what can be done with it.

At a moment in the past, what had not been said yet stays in its place as faint text: nothing moves, and tokens further
on can still be looked at and gone to.
"""

import asyncio
from functools import partial

import numpy as np
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication, QHideEvent, QResizeEvent, QShowEvent, QTextCharFormat
from PySide6.QtWidgets import QBoxLayout, QMenu, QStackedLayout, QToolButton, QWidget

from app.language import tr
from app.play.states import state_color
from app.play.transcript.card import TokenCardView
from app.play.transcript.styles import TokenMode
from app.play.transcript.switch import TokenSwitch
from app.play.transcript.text import TokenText
from app.play.transcript.tokens import TokenCard, Waits, draft_classes, token_card, token_classes
from app.playback.bridge import Bridge
from app.playback.player import touched_by
from app.session.session import Session
from app.ui.controls import button, line_edit
from app.ui.labels import Note, label
from app.ui.layout.boxes import column, fill, held, named, row
from app.ui.line import Parts
from app.ui.look import theme
from app.words import duration, number, state_words
from engine.trace import Array, Record, RequestView, SampleView, State, request_metrics

EMPTY = tr("Select a stream to read it whole.")
LONE = 2  # messages of a chat with one answer: a system prompt and a question
WIDE, MEDIUM = 860, 460  # from here on, what can be done has buttons; and one line holds all that is above the text
LEAST = 220
ROLES = {"user": tr("You"), "assistant": tr("Answer"), "system": tr("System")}


def metrics_parts(view: RequestView) -> list[str]:
    """The request's numbers so far, in words."""
    metrics = request_metrics(view)
    most = view.params.max_tokens * len(view.samples)
    parts = [
        tr("{tokens:,} tokens in", tokens=metrics.prompt_tokens),
        tr("{tokens:,} of {most:,} out", tokens=metrics.output_tokens, most=most),
    ]
    for name, value in (("TTFT", metrics.ttft), ("TPOT", metrics.tpot), ("E2E", metrics.e2e)):
        if value is not None:
            parts.append(f"{name} {duration(value)}")
    rate = view.tokens_per_second
    if rate is not None:
        parts.append(tr("{rate} tok/s", rate=number(rate)))
    drafted = sum(sum(sample.drafted) for sample in view.samples)
    if drafted:
        parts.append(tr("{drafted:,} of them drafted", drafted=drafted))
    if view.preemptions:
        parts.append(tr("preempted {times} ×", times=view.preemptions))
    return parts


class Transcript(QWidget):
    """Shows `request`, None until one is chosen. Text comes once a frame; the place read stays unless at the end.

    The scope gives it a turn a frame, in which it shows what moved.
    """

    request_created = Signal(int)  # a follow-up or regeneration made this request

    def __init__(self, bridge: Bridge, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("transcript")
        self.bridge, self.session = bridge, session
        self.request: int | None = None
        self._wanted: int | None = None
        self._stale = False
        self.name = label("", "", "transcript_name")
        self.name.setTextFormat(Qt.TextFormat.RichText)
        self.numbers = Parts("transcript_metrics", 12)
        self.switch = TokenSwitch()
        self.text = TokenText()
        self.text.set_mode(self.switch.mode)
        self.card = TokenCardView(self)
        self.error = Note("transcript_error", "error")
        quiet, again = partial(button, role="quiet"), tr("The same prompt again with a fresh seed")
        self.copy_button = quiet("transcript_copy", tr("Copy"), self._on_copy, tip=tr("Copy the answer"))
        self.again_button = quiet("transcript_regenerate", tr("Regenerate"), self._on_regenerate, tip=again)
        stops = tr("Stop this stream; its text stays")
        self.stop_button = quiet("transcript_stop", tr("Stop"), self._on_stop, tip=stops)
        self.follow_up = line_edit("follow_up", tr("Follow up"))
        self.follow_up.returnPressed.connect(self._on_follow_up)
        self.send_button = button("follow_up_send", tr("Send"), self._on_follow_up)
        self._deeds = self.copy_button, self.again_button, self.stop_button
        self.more = self._make_more()
        titles, controls = row(self.name, (self.numbers, 1)), row(self.switch, None, *self._deeds, self.more)
        titles.setSpacing(8)
        self._head = fill(QBoxLayout(QBoxLayout.Direction.LeftToRight), (titles, 1), controls, spacing=8)
        foot = row((self.follow_up, 1), self.send_button)
        page = held(column(self._head, self.switch.legend, (self.text, 1), self.error, foot, spacing=8))
        empty = label(EMPTY, "secondary", "transcript_empty")
        empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        empty.setWordWrap(True)
        self._pages = QStackedLayout(self)
        self._pages.addWidget(empty)
        self._pages.addWidget(page)
        self.follow_up.textChanged.connect(self._tell_state)
        self.switch.mode_changed.connect(self._on_mode)
        self.switch.sample_changed.connect(self._rewrite)
        self.text.token_changed.connect(self._tell_card)
        self.text.token_chosen.connect(self._on_chosen)
        self.text.verticalScrollBar().valueChanged.connect(self._tell_card)
        bridge.scope.attach(self)
        bridge.scope.moved.connect(self._on_moved)
        bridge.scope.selected.connect(self.select)
        bridge.records_arrived.connect(self._on_records)
        bridge.trace_reset.connect(self._on_reset)
        session.state_changed.connect(self._tell_state)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()

    def _make_more(self) -> QToolButton:
        """What can be done, as a menu: where there is no room for buttons."""
        tip = ", ".join(each.text() for each in self._deeds)
        more = named(QToolButton(), "transcript_more", said=tr("What can be done with the answer"), tip=tip)
        more.setText("⋯")
        more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(more)
        for deed in self._deeds:
            menu.addAction(deed.text(), deed.click)

        def enable() -> None:
            for action, deed in zip(menu.actions(), self._deeds):
                action.setEnabled(deed.isEnabled())

        menu.aboutToShow.connect(enable)
        more.setMenu(menu)
        return more

    @property
    def view(self) -> RequestView | None:
        """The request as it is now."""
        return self.bridge.requests.get(self.request) if self.request is not None else None

    @property
    def shown(self) -> RequestView | None:
        """The request as it stood at the moment on show; None where it had not been submitted."""
        return self.bridge.shown.get(self.request) if self.request is not None else None

    @property
    def sample(self) -> SampleView | None:
        """The sample on show, as it is now."""
        view = self.view
        return view.samples[min(self.switch.sample, len(view.samples) - 1)] if view is not None else None

    def select(self, request: int | None) -> None:
        """Shows a request, or as soon as it arrives; None or -1 shows none."""
        request = None if request is None or request < 0 else request
        self._wanted = request if request is not None and request not in self.bridge.requests else None
        if self._wanted is None and request != self.request:
            self.request = request
            self.follow_up.clear()
            view = self.view
            beams = view is not None and view.params.beam_width > 1
            self.switch.offer(len(view.samples) if view is not None else 1, beams)
            header = self.bridge.trace.header if self.bridge.trace is not None else None
            self.switch.offer_drafts(header is not None and header.config.speculation is not None)
            self._rewrite()

    # -- the text -------------------------------------------------------------------------------------------------

    def _rewrite(self) -> None:
        """The whole text anew."""
        view = self.view
        self.text.forget()
        self._pages.setCurrentIndex(0 if view is None else 1)
        if view is None:
            return
        for message in view.messages:
            role = message.get("role", "")
            self._write(ROLES.get(role, role), "role")
            self._write(str(message.get("content", "")), "asked")
        if view.messages:
            self._write(ROLES["assistant"], "role")
            self._write("", "said")
        else:
            self._write(view.prompt, "asked")
        self.text.begin()
        self._update()
        if view.state is not State.FINISHED or len(view.messages) > LONE:
            self.text.show_end()
        else:
            self.text.show_begin()

    def _write(self, text: str, kind: str) -> None:
        t = theme.current()
        form = QTextCharFormat()
        form.setFont(theme.ui(11, 600) if kind == "role" else theme.mono(13))
        form.setForeground(t.text if kind == "said" else t.secondary)
        self.text.write(text, form, apart=kind == "role")

    def _update(self) -> None:
        """Shows what is new, or another moment; a selection and the place read stay."""
        self._stale = False
        view, sample = self.view, self.sample
        if view is None or sample is None:
            return
        said = len(sample.text)
        if not self.bridge.scope.following:
            then = self.shown
            said = len(then.samples[sample.branch].text) if then is not None else 0
        ends = np.array(sample.text_ends, np.int64)
        begins = view.answer_begins(sample)
        thought = len(sample.text) if begins is None else begins
        self.text.show_answer(sample.text, ends, self._classes(view, sample), said, thought)
        self._tell_state()
        self._tell_card()

    def _classes(self, view: RequestView, sample: SampleView) -> Array:
        """The classes of the sample's tokens in the mode that is on, and their legend."""
        if self.switch.mode is TokenMode.DRAFTS:
            self.switch.say()
            return draft_classes(sample)
        if self.switch.mode is not TokenMode.TIME or not sample.tokens:
            self.switch.say()
            return token_classes(sample.logprobs)
        waits = Waits.of(view.submitted, sample.token_times)
        median = duration(waits.median) if len(waits.seconds) > 1 else ""
        self.switch.say(median, duration(float(waits.seconds[0])), len(waits.seconds) < len(sample.tokens))
        return waits.classes()

    # -- tokens ---------------------------------------------------------------------------------------------------

    def card_of(self, token: int) -> TokenCard | None:
        """All about a token of the sample on show; None where there is none."""
        view, sample, scope = self.view, self.sample, self.bridge.scope
        if view is None or sample is None or not 0 <= token < len(sample.tokens):
            return None
        time = sample.token_times[token]
        place = scope.place_at(time)
        step = scope.step_at(place) if place >= 0 and scope.step_ends[place] == time else None
        header = self.bridge.header
        return token_card(view, sample.branch, token, step, header.model.vocabulary if header is not None else 0)

    def _tell_card(self, *changed: object) -> None:
        card = self.card_of(self.text.wanted) if self.text.mode is not TokenMode.TEXT and self.isVisible() else None
        if card is None:
            self.card.drop()
            return
        box = self.text.token_rects(self.text.wanted)[0].toAlignedRect()
        box.moveTopLeft(self.text.viewport().mapTo(self, box.topLeft()))
        self.card.show_card(card, self.bridge.scope.origin, box)
        self.text.setAccessibleDescription(self.card.accessibleName())

    def _on_chosen(self, token: int) -> None:
        sample = self.sample
        if sample is not None and token < len(sample.token_times):
            self.bridge.scope.seek(sample.token_times[token])

    def _on_mode(self) -> None:
        self.text.set_mode(self.switch.mode)
        self._update()

    # -- the moment -----------------------------------------------------------------------------------------------

    def advance(self, deadline: float) -> None:
        """Records come from the bridge."""

    def refresh(self) -> bool:
        """Shows what moved since the last frame."""
        stale = self._stale
        if stale:
            self._update()
        return stale

    def catch_up(self) -> None:
        self.refresh()

    def _on_moved(self) -> None:
        self._stale = True

    def _tell_state(self, *changed: object) -> None:
        now = self.view
        if now is None:
            return
        then, over = self.shown, now.state is State.FINISHED
        view = then or now
        dot, color = theme.request_color(view.request).name(), state_color(view, theme.current()).name()
        words = state_words(view) if then is not None else tr("not submitted yet")
        name = f'<span style="color:{dot}">●</span>&nbsp; <b>{view.request}</b>&nbsp; '
        self.name.setText(f'{name}<span style="color:{color}">{words}</span>')
        self.name.setAccessibleName(tr("Stream {number}, {state}", number=view.request, state=words))
        self.numbers.say_parts(metrics_parts(view) if then is not None else [])
        self.error.say(view.error)
        ready = self.session.ready
        self.stop_button.setEnabled(not over and ready)
        self.again_button.setEnabled(ready)
        self.copy_button.setEnabled(bool(self.sample and self.sample.text))
        self.follow_up.setEnabled(over and ready)
        self.send_button.setEnabled(over and ready and bool(self.follow_up.text().strip()))
        hint = tr("Follow up on this answer") if view.messages else tr("Go on with this text")
        waits = tr("A follow-up can be sent when this stream has finished")
        self.follow_up.setPlaceholderText(hint if over else waits)

    def _on_records(self, records: list[Record]) -> None:
        following = self.bridge.scope.following
        if self._wanted in self.bridge.requests:
            self.select(self._wanted)
        elif self.view is None or self.request not in touched_by(records):
            return
        elif self.isVisible() and following:
            self._update()
        else:
            self._stale = self._stale or following
            self._tell_state()

    def _on_reset(self, trace: object) -> None:
        self.request = self._wanted = None
        self.switch.offer(1)
        self._rewrite()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fold()

    def _fold(self) -> None:
        """All above the text is on one line, or on two where it is narrow."""
        ways, width = QBoxLayout.Direction, self.width()
        self._head.setDirection(ways.LeftToRight if width >= theme.px(MEDIUM) else ways.TopToBottom)
        for each in self._deeds:
            each.setVisible(width >= theme.px(WIDE))
        self.more.setVisible(width < theme.px(WIDE))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._stale:
            self._update()

    def hideEvent(self, event: QHideEvent) -> None:
        self.card.drop()
        super().hideEvent(event)

    # -- what can be done -----------------------------------------------------------------------------------------

    def _on_copy(self) -> None:
        sample = self.sample
        if sample is not None:
            QGuiApplication.clipboard().setText(sample.text)

    def _on_stop(self) -> None:
        if self.request is not None:
            self.session.stop([self.request])

    def _on_regenerate(self) -> None:
        if (view := self.view) is not None:
            self.session.regenerate(view).add_done_callback(self._on_created)

    def _on_follow_up(self) -> None:
        text = self.follow_up.text().strip()
        if (view := self.view) is not None and text and self.send_button.isEnabled():
            self.session.continue_chat(view, text).add_done_callback(self._on_created)
            self.follow_up.clear()

    def _on_created(self, task: asyncio.Task[list[int]]) -> None:
        if not task.cancelled() and task.exception() is None and task.result():
            self.request_created.emit(task.result()[0])

    def _on_theme(self) -> None:
        self.setMinimumWidth(theme.px(LEAST))  # what is below it gives way before the window grows
        self._fold()
        self.text.restyle()
        self._rewrite()
