"""The step inspector: the step at the scope's cursor, whole."""

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QToolButton

from app.inside.look import Look
from app.inside.panel import COMING, InsightPanel, tool_button
from app.inside.step.facts import COLUMNS, REQUEST, step_facts
from app.inside.step.history import StepHistory
from app.inside.step.picture import StepPicture
from app.inside.step.story import StepStory
from app.language import tr
from app.playback.scope import Scope
from app.ui.look import theme
from app.ui.look.backstage import Backstage
from app.ui.tables.facts import Facts
from engine.trace import Record

NOTHING = tr("No step yet. Send a prompt, and the step that computes it is taken apart here.")
BEFORE = tr("The cursor stands before the first step. Go to the next step to see it.")


class StepInspector(InsightPanel):
    """Each row of a step, where its time went, what became of blocks, and why the queue's first did not join."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope, "step", tr("Step"))
        self._history = StepHistory()
        self._story: StepStory | None = None
        pair = QHBoxLayout()
        pair.setSpacing(0)
        self.previous = self._button(pair, "step_previous", "‹", tr("Previous step"), ",", -1)
        self.next = self._button(pair, "step_next", "›", tr("Next step"), ".", 1)
        self.head.insertLayout(self.head.indexOf(self.summary), pair)
        Backstage(self, self.previous, self.next)
        self.summary.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        self.view = StepPicture()
        self.set_picture(self.view)
        self.view.rows.request_chosen.connect(scope.select)
        self.view.sheet.request_chosen.connect(scope.select)

    def _button(self, pair: QHBoxLayout, name: str, text: str, said: str, key: str, steps: int) -> QToolButton:
        button = tool_button(name, text, f"{said} ({key})", said)
        button.setAutoRepeat(True)
        button.clicked.connect(lambda: self.scope.step_by(steps))
        pair.addWidget(button)
        return button

    def pose(self, look: Look) -> None:
        super().pose(look)
        self.view.hide_bars()

    @property
    def tall(self) -> int:
        return self.head.sizeHint().height() + theme.px(6) + self.view.tall

    # -- the scope's turn -----------------------------------------------------------------------------------------

    def take(self, records: Sequence[Record]) -> None:
        self._history.take(records)

    def adopt(self, known: StepHistory) -> bool:
        self._history = known
        return True

    def forget(self) -> None:
        self._history = StepHistory()
        self._story = None

    def draw(self) -> None:
        scope = self.scope
        place = self.step_shown(self._history.steps)
        if place < 0:
            self._story = None
        elif self._story is None or (self._story.place, self._story.known) != (place, self._history.steps):
            self._story = StepStory(scope.step_at(place), self._history, place, scope.origin)
        empty = "" if self._story is not None else BEFORE if scope.steps else COMING if scope.begun else NOTHING
        self.view.show_story(self._story, scope.request, empty)
        self.previous.setEnabled(place > 0)
        self.next.setEnabled(scope.place < scope.steps - 1)
        self._say()

    def _say(self) -> None:
        story = self._story
        if story is None:
            self.summary.say("")
            return
        size = (story.size_words,) if self.view.wide else ()
        self.summary.say(" · ".join((story.when_words, *size)), *story.short_when_words)

    def facts(self) -> Facts:
        return step_facts(self._story) if self._story is not None else Facts(COLUMNS)

    def row_chosen(self, row: int) -> None:
        request = self.facts().rows[row][REQUEST]
        if isinstance(request, int):
            self.scope.select(request)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._say()
