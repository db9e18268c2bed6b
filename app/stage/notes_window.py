"""The speaker's own window: notes of the scene, question and answer, the clock, and what comes next."""

from time import monotonic, strftime

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication, QHideEvent, QShowEvent
from PySide6.QtWidgets import QLabel, QWidget

from app.language import tr
from app.stage.tour import Tour
from app.ui.controls import button
from app.ui.labels import Hairline, label
from app.ui.layout.boxes import Scrolled, column, named, row
from app.ui.layout.zoomed import zoomed

FIRST_SIZE = 900, 640
TITLE = tr("Speaker's notes")
NO_SCENE = tr("No scene is on: a number key begins one.")


def _told(role: str, name: str) -> QLabel:
    made = label("", role, name)
    made.setWordWrap(True)
    return made


def clock_words(seconds: float) -> str:
    """ "12:05", "1:02:05"."""
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


class NotesWindow(QWidget):
    """A normal window, which goes to the second screen where there is one."""

    def __init__(self, beside: QWidget) -> None:
        super().__init__(beside, Qt.WindowType.Window)
        named(self, "notes_window", "page", said=TITLE)
        self.setWindowTitle(TITLE)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self._beside, self._since = beside, monotonic()
        self._tour: Tour | None = None
        self.clock, self.elapsed = label("", "scene", "notes_clock"), label("", "scene", "notes_elapsed")
        restart = button("notes_restart", tr("From 0:00"), self.restart, role="quiet", tip=tr("The talk begins now"))
        self.number = label("", "secondary", "notes_number")
        self.title = _told("scene", "notes_title")
        self.notes, self.pointed = _told("caption", "notes_words"), _told("pointed", "notes_pointed")
        self.question, self.answer = _told("question", "notes_question"), _told("caption", "notes_answer")
        self.then, self.first = _told("title", "notes_next"), _told("question", "notes_next_caption")
        head = row(self.clock, 24, self.elapsed, restart, None, self.number, spacing=8)
        now = self.title, self.pointed, self.notes, Hairline(), self.question, self.answer
        words = zoomed(column(*now, Hairline(), self.then, self.first, None), (0, 0, 12, 0), 10)
        self.setLayout(zoomed(column(head, (Scrolled(words, "notes_scroll", tr("notes")), 1)), (20, 14, 12, 14), 12))
        self._timer = QTimer(self, interval=500)
        self._timer.timeout.connect(self._tick)
        self.resize(*FIRST_SIZE)
        self.follow(None)

    def follow(self, tour: Tour | None) -> None:
        """Tells of this tour from now on."""
        self._tour = tour
        if tour is not None:
            tour.scene_begun.connect(self._tell)
            tour.pointed.connect(self._tell)
        self._tell()

    def restart(self) -> None:
        """The talk begins now."""
        self._since = monotonic()
        self._tick()

    def open(self) -> None:
        """On another screen than the stage's, where there is one."""
        stage = self._beside.screen()
        other = next((screen for screen in QGuiApplication.screens() if screen is not stage), None)
        if other is not None:
            self.setGeometry(other.availableGeometry())
        self.show()
        self.raise_()
        self.setFocus()

    def _tell(self) -> None:
        tour = self._tour
        scene = tour.scene if tour is not None and tour.number >= 0 else None
        after = tour.scenes[tour.number + 1 : tour.number + 2] if tour is not None and scene is not None else ()
        place = tr("{n} of {all}", n=tour.number + 1, all=len(tour.scenes)) if tour is not None and scene else ""
        self.number.setText(place)
        self.title.setText(scene.title if scene else NO_SCENE)
        self.pointed.setText(tour.words if tour is not None and scene else "")
        self.notes.setText((scene.notes or scene.caption) if scene else "")
        self.question.setText(scene.question if scene else "")
        self.answer.setText(scene.answer if scene else "")
        last = tr("The last scene.") if scene else ""
        self.then.setText(tr("Next: {title}", title=after[0].title) if after else last)
        self.first.setText(after[0].caption if after else "")
        for each in (self.pointed, self.notes, self.question, self.answer, self.then, self.first):
            each.setVisible(bool(each.text()))

    def _tick(self) -> None:
        self.clock.setText(strftime("%H:%M"))
        self.elapsed.setText(clock_words(monotonic() - self._since))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._tick()
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        self._timer.stop()
        super().hideEvent(event)
