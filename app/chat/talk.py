"""Answers under way: sent through the session, followed in its trace, written down as they grow."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.chat.heard import Heard, Hearing
from app.chat.store.conversations import Conversation, ConversationStore
from app.chat.store.presets import Preset
from app.chat.store.tree import Facts, Turn, messages
from app.language import tr
from app.session.session import Session, SessionState
from app.words import model_words
from engine import InvalidInput, Submission, Trace
from engine.config import SCHEMES

FRAME_MS = 33
WRITE_SECONDS = 1.0  # from one writing of a growing answer to the next
CUT_WORDS = tr("The engine ended before the answer did; regenerate it.")
NOT_SENT = tr("It was not sent.")


@dataclass(frozen=True, slots=True)
class Question:
    """An answer that is wanted: an empty `turn`, after the end of `path`."""

    turn: Turn
    path: Sequence[Turn]
    preset: Preset


@dataclass(slots=True, eq=False)
class Answer:
    """One that is under way; `heard` once the engine of its session has it."""

    conversation: Conversation
    turn: Turn
    session: Session
    heard: Heard | None = None
    hearing: Hearing | None = None
    stopped: bool = False
    written: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """Questions to another model, sent once `after` are over: side by side, each would slow the other."""

    conversation: Conversation
    questions: Sequence[Question]
    session: Session
    after: Sequence[Turn]


class Talk(QObject):
    """Knows which answers are under way, in whatever conversation."""

    grown = Signal(object)  # Turn: it says more
    ended = Signal(object)  # Turn: no more comes
    failed = Signal(str)  # something was not kept, in words

    def __init__(self, store: ConversationStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._waiting: list[Waiting] = []
        self._answers: dict[int, Answer] = {}  # by their turns
        self._refused = ""
        self._timer = QTimer(self, interval=FRAME_MS, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._on_frame)

    @property
    def busy(self) -> bool:
        return bool(self._answers or self._waiting)

    def writes(self, turn: Turn) -> bool:
        """Whether this answer is under way, or waits for another one."""
        return turn.id in self._answers or any(q.turn is turn for each in self._waiting for q in each.questions)

    def wait(
        self, conversation: Conversation, questions: Sequence[Question], session: Session, after: Sequence[Turn]
    ) -> None:
        """Sends them when the answers `after` are over."""
        self._waiting.append(Waiting(conversation, questions, session, after))

    def ask(self, conversation: Conversation, questions: Sequence[Question], session: Session) -> None:
        """Sends them at once, as requests beside each other."""
        model, trace = model_words(session.spec.source), session.trace
        if session.spec.quantization != "none":
            model = f"{model}, {SCHEMES[session.spec.quantization].title}"
        answers, submissions = [], []
        for question in questions:
            preset, turn = question.preset, question.turn
            turn.facts = Facts(preset=preset.name, model=model)
            answers.append(Answer(conversation, turn, session))
            seed = preset.params.seed if preset.params.seed is not None else random.getrandbits(31)
            params = preset.params.with_(n=1, seed=seed)
            label = tr("Chat: {title}", title=conversation.title)
            submissions.append(Submission(list(messages(list(question.path), preset.system)), params, label=label))
        self._answers.update((answer.turn.id, answer) for answer in answers)
        self._timer.start()
        begin = len(trace.records) if trace is not None else 0
        self._refused = ""
        refused = session.submit_failed.connect(self._on_refused)
        task = session.send(submissions)
        task.add_done_callback(lambda task: session.submit_failed.disconnect(refused))
        task.add_done_callback(lambda task: self._on_sent(task, answers, trace, begin))

    def stop(self, turns: Sequence[Turn] | None = None) -> None:
        """Ends these answers, or all; what they say so far stays."""
        answers = [a for a in self._answers.values() if turns is None or a.turn in turns]
        for answer in answers:
            answer.stopped = True
        self._cancel(answers)
        for waiting in [w for w in self._waiting if turns is None or any(q.turn in turns for q in w.questions)]:
            self._waiting.remove(waiting)
            for question in waiting.questions:
                question.turn.facts = replace(question.turn.facts, reason="cancelled")
                self._store.write(question.turn, last=True)
                self.ended.emit(question.turn)

    def close(self) -> None:
        """The window closes: what is there is written down."""
        self._timer.stop()
        self._waiting.clear()
        for answer in self._answers.values():
            self._write(answer, last=True)
        self._answers.clear()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _cancel(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            if answer.heard is not None and answer.turn.facts.request >= 0:
                answer.session.stop([answer.turn.facts.request])

    def _on_refused(self, words: str) -> None:
        self._refused = words

    def _on_sent(
        self, task: asyncio.Task[list[int]], answers: Sequence[Answer], trace: Trace | None, begin: int
    ) -> None:
        sent = [] if task.cancelled() or task.exception() is not None else task.result()
        if not sent or trace is None:
            for answer in answers:
                self._end(answer, replace(answer.turn.facts, error=self._refused or NOT_SENT))
            return
        run = answers[0].session.run_file
        shared = next((a.hearing for a in self._answers.values() if a.hearing and a.hearing.trace is trace), None)
        hearing = shared or Hearing(trace)
        for answer, request in zip(answers, sent, strict=True):
            answer.hearing, answer.heard = hearing, hearing.listen(request, begin)
            answer.turn.facts = replace(answer.turn.facts, run=str(run or ""), request=request)
        self._cancel([answer for answer in answers if answer.stopped])

    def _on_frame(self) -> None:
        for hearing in {a.hearing for a in self._answers.values() if a.hearing is not None}:
            hearing.hear()
        for answer in list(self._answers.values()):
            heard, turn = answer.heard, answer.turn
            if heard is None:
                continue
            text, before = heard.text, (turn.text, turn.facts)
            turn.text = text
            turn.facts = _told(turn.facts, heard)
            if heard.reason is not None:
                self._end(answer, turn.facts)
            elif self._gone(answer):
                self._end(answer, replace(turn.facts, error=CUT_WORDS))
            elif before != (turn.text, turn.facts):
                self.grown.emit(turn)
                if monotonic() - answer.written > WRITE_SECONDS:
                    self._write(answer, last=False)

    def _gone(self, answer: Answer) -> bool:
        """Whether its engine cannot end it any more."""
        session, ended = answer.session, (SessionState.DIED, SessionState.EMPTY, SessionState.LEASED)
        return session.state in ended or answer.hearing is None or session.trace is not answer.hearing.trace

    def _go_on(self) -> None:
        """Sends what has waited for answers that are over now."""
        for waiting in [w for w in self._waiting if not any(self.writes(turn) for turn in w.after)]:
            self._waiting.remove(waiting)
            self.ask(waiting.conversation, waiting.questions, waiting.session)

    def _end(self, answer: Answer, facts: Facts) -> None:
        answer.turn.facts = facts
        self._write(answer, last=True)
        self._answers.pop(answer.turn.id, None)
        self.ended.emit(answer.turn)
        self._go_on()
        if not self._answers:
            self._timer.stop()

    def _write(self, answer: Answer, *, last: bool) -> None:
        answer.written = monotonic()
        try:
            self._store.write(answer.turn, last=last)
        except InvalidInput as error:
            self.failed.emit(str(error))


def _told(facts: Facts, heard: Heard) -> Facts:
    return replace(
        facts,
        prompt_tokens=heard.prompt_tokens,
        tokens=heard.tokens,
        ttft=heard.ttft,
        rate=heard.rate,
        thought=heard.thought - heard.first if heard.thought is not None and heard.first is not None else None,
        thoughts=heard.thoughts,
        reason=heard.reason.value if heard.reason is not None else "",
        error=heard.error,
    )
