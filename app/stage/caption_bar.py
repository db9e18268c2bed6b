"""The bar below the pages while a tour is on: what the scene is, what is lit, a question, and the way on."""

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QLabel, QPushButton, QSizePolicy

from app.language import tr
from app.stage.scene import Scene
from app.ui.controls import button
from app.ui.labels import label
from app.ui.layout.boxes import column, named, row
from app.ui.layout.zoomed import zoomed
from app.ui.line import Line
from app.ui.look import theme
from app.ui.look.backstage import Backstage

MOST = (1 << 24) - 1  # pixels: Qt's own
TRY, BACK = tr("Try it"), tr("Back to the scene")
TRY_TIP = tr("Hands over the controls, set as this scene has them")
BACK_TIP = tr("Plays the scene from its beginning")
COPY_TIP = tr("Copies the command that does the same")
TALL = 600  # pixels of the design: a window so high has room for all that is said of a scene
STAGE_LINES = 3  # of words below the title, while presenting: what is pointed at stands in the caption's place
KEYS = tr("Page down and Page up go to the next scene and the one before, as do the arrow keys here; Esc leaves.")


def told(role: str, name: str) -> QLabel:
    """A line of words that is wrapped, and asks for no width."""
    made = label("", role, name)
    made.setWordWrap(True)
    made.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
    return made


class CaptionBar(QFrame):
    """Says what it is told; what a person asks for is a signal."""

    moved = Signal(int)  # so many scenes on, or back
    tried = Signal(bool)  # whether the controls are wanted, or the scene again
    toggled = Signal()  # play on, or pause
    left = Signal()

    def __init__(self) -> None:
        super().__init__()
        named(self, "caption_bar", "stage", said=tr("Tour"))
        self.setAccessibleDescription(KEYS)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.title = label("", "scene", "scene_title")
        self.title.setMinimumWidth(1)
        self.number = label("", "secondary", "scene_number")
        self.status = Line("scene_status", size=12)
        self.caption, self.pointed = told("caption", "scene_caption"), told("pointed", "scene_pointed")
        self.question = told("question", "scene_question")
        self.previous = self._button("scene_previous", tr("‹  Previous"), lambda: self.moved.emit(-1), tr("Page up"))
        self.next = self._button("scene_next", tr("Next  ›"), lambda: self.moved.emit(1), tr("Page down"), "primary")
        self.answer = self._button("scene_answer", tr("Answer"), self._on_answer, tr("Shows the answer"), "quiet")
        self.try_button = self._button("scene_try", TRY, self._on_try, TRY_TIP)
        self.copy = self._button("scene_copy", tr("Copy command"), self._on_copy, COPY_TIP, "quiet")
        self.leave = self._button("scene_leave", tr("Leave"), self.left.emit, tr("Leaves the tour (Esc)"), "quiet")
        self._scene: Scene | None = None
        self._trying = self._asked = False
        self._lay_out()
        buttons = self.previous, self.next, self.answer, self.try_button, self.copy, self.leave
        Backstage(self, *buttons)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()

    def _lay_out(self) -> None:
        head = row(self.title, 12, self.number, 12, (self.status, 1), spacing=0)
        asked = row((self.question, 1), self.answer, spacing=8)
        words = column(head, self.caption, self.pointed, asked, None, spacing=4)
        on = row(self.previous, self.next, spacing=8)
        other = row(self.try_button, self.copy, self.leave, spacing=4)
        self.setLayout(zoomed(row((words, 1), column(on, other, None, spacing=8)), (16, 10, 12, 10), 20))

    def _button(self, name: str, text: str, act: Callable[[], object], tip: str, role: str = "") -> QPushButton:
        return button(name, text, lambda checked=False: act(), role=role, tip=tip)

    def show_scene(self, scene: Scene, number: int, scenes: int) -> None:
        """Scene `number` of `scenes`, counted from 1."""
        self._scene = scene
        self.title.setText(scene.title)
        self.number.setText(tr("{n} of {all}", n=number, all=scenes))
        self.caption.setText(scene.caption)
        self._asked = False
        self.answer.setEnabled(True)
        self.previous.setEnabled(number > 1)
        self.next.setEnabled(number < scenes)
        self.copy.setToolTip(f"{COPY_TIP}:\n{scene.command}")
        self.say_trying(False)
        self.point("")
        self._choose_words()
        place = tr("Tour, scene {n} of {all}", n=number, all=scenes)
        self.setAccessibleName(f"{place}: {scene.title}. {scene.caption}")

    def point(self, words: str) -> None:
        """What is lit just now."""
        if words != self.pointed.text():
            self.pointed.setText(words)
            self._choose_words()

    def say(self, words: str) -> None:
        """What the scene is doing."""
        self.status.say(words)

    def say_trying(self, trying: bool) -> None:
        """Whether the person has the controls."""
        self._trying = trying
        self.try_button.setText(BACK if trying else TRY)
        self.try_button.setToolTip(BACK_TIP if trying else TRY_TIP)

    def ask(self) -> None:
        """The question, then its answer, then the scene's words again: for a stage, where there are no buttons."""
        if self._asked and self.answer.isEnabled():
            self._on_answer()
        else:
            self._asked = not self._asked
            self.answer.setEnabled(True)
            self._choose_words()

    def _choose_words(self) -> None:
        """A stage has room for one of the three; a low window for the caption or what is pointed at."""
        stage, pointed = theme.presenting(), bool(self.pointed.text())
        low = stage or self.window().height() < theme.px(TALL)
        self.caption.setVisible(not low or not (pointed or (stage and self._asked)))
        self.pointed.setVisible(not stage or (pointed and not self._asked))
        self.question.setVisible(not stage or self._asked)
        if (scene := self._scene) is not None:
            answered = scene.answer if stage else f"{scene.question}\n{scene.answer}"
            self.question.setText(scene.question if self.answer.isEnabled() else answered)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._choose_words()

    def _on_theme(self) -> None:
        line, stage = self.caption.fontMetrics().lineSpacing(), theme.presenting()
        height = theme.px(20 + 4) + self.title.sizeHint().height() + STAGE_LINES * line
        self.setMinimumHeight(height if stage else theme.px(136))
        self.setMaximumHeight(height if stage else MOST)
        self._choose_words()

    def _on_answer(self) -> None:
        if self._scene is not None:
            self.answer.setEnabled(False)
            self._choose_words()
            self.setFocus()

    def _on_try(self) -> None:
        self.tried.emit(not self._trying)

    def _on_copy(self) -> None:
        if self._scene is not None:
            QGuiApplication.clipboard().setText(self._scene.command)
            self.say(tr("The command was copied."))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Space:
                self.toggled.emit()
            case Qt.Key.Key_Right | Qt.Key.Key_Down:
                self.moved.emit(1)
            case Qt.Key.Key_Left | Qt.Key.Key_Up:
                self.moved.emit(-1)
            case _:
                super().keyPressEvent(event)
