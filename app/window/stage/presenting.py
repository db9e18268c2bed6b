"""Presenting: the window for a room, in full screen, with keys for a speaker who does not look at it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QObject, Qt, QTimer
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QMainWindow, QWidget

from app.language import tr
from app.stage.curtain import Curtain, KeyCard
from app.stage.notes_window import NotesWindow
from app.stage.pace import Pace
from app.stage.stage import Stage
from app.ui.look import theme
from app.ui.look.backstage import Backstage
from app.window.stage.touring import Touring

TYPED_MS = 800  # after which a 1 is scene 1, and no longer the beginning of 12
KEYS = (
    (tr("Page down  →"), tr("the next scene")),
    (tr("Page up  ←"), tr("the scene before")),
    ("1 … 9, 0, 12", tr("scene of that number; 0 is 10")),
    (tr("Space"), tr("play, pause")),
    ("S", tr("slow motion: in 20 s, in 60 s")),
    ("Q", tr("the question, then its answer")),
    ("N", tr("speaker's notes, in a window of their own")),
    ("B", tr("black, and back")),
    ("?", tr("these keys")),
    (tr("F5  Esc"), tr("the end of presenting")),
)


class Presenting(QObject):
    """`away` is out of sight meanwhile. Leaving it, all is as before."""

    def __init__(self, stage: Stage, touring: Touring, away: tuple[QWidget, ...], window: QMainWindow) -> None:
        super().__init__(window)
        self._stage, self._touring, self._window = stage, touring, window
        self.pace = Pace(stage)
        self.notes: NotesWindow | None = None
        self.curtain: Curtain | None = None
        self.keys: KeyCard | None = None
        self._before = Qt.WindowState.WindowNoState
        self._typed = ""
        self._typing = QTimer(self, interval=TYPED_MS, singleShot=True)
        self._typing.timeout.connect(self._go)
        self._shortcuts: list[QShortcut] = []
        Backstage(self, *away)
        touring.begun.connect(self._on_tour)

    @property
    def on(self) -> bool:
        return theme.presenting()

    def actions(self) -> list[tuple[str, Callable[[], object], str]]:
        """What a person can ask for: words, what it does, its key."""
        return [(tr("Present in full screen"), self.toggle, "F5"), (tr("Speaker's notes"), self.show_notes, "Shift+F5")]

    def toggle(self) -> None:
        if self.on:
            self.leave()
        else:
            self.begin()

    def begin(self) -> None:
        """Full screen, in the size of this screen."""
        if self.on:
            return
        self._before = self._window.windowState()
        self._stage.play.present()
        theme.present(self._window.screen().size())
        if self._touring.tour is not None:
            self._touring.tour.arrange()
        self._window.showFullScreen()
        if not self._shortcuts:
            self._make_keys()
        self._hear(True)
        self._focus()

    def leave(self) -> None:
        if not self.on:
            return
        self._typing.stop()
        self._hear(False)
        for cover in (self.curtain, self.keys, self.notes):
            if cover is not None:
                cover.hide()
        self.pace.restore()
        theme.present(None)
        self._stage.play.put_back()
        if self._touring.tour is not None:
            self._touring.tour.arrange()
        self._window.setWindowState(self._before)
        self._focus()

    def escape(self) -> None:
        """Puts away what covers the stage, or leaves."""
        covers = [cover for cover in (self.curtain, self.keys) if cover is not None and cover.isVisible()]
        for cover in covers:
            cover.hide()
        if not covers:
            self.leave()

    def show_notes(self) -> None:
        """The speaker's window, or puts it away."""
        if self.notes is None:
            self.notes = NotesWindow(self._window)
            self.notes.follow(self._touring.tour)
            for key in ("F5", "Esc"):
                QShortcut(QKeySequence(key), self.notes).activated.connect(self._end)
        if self.notes.isVisible():
            self.notes.hide()
        else:
            self.notes.open()

    def _end(self) -> None:
        """From the notes: these are away, and what they were for."""
        self.leave()
        if self.notes is not None:
            self.notes.hide()

    # -- keys -----------------------------------------------------------------------------------------------------

    def _make_keys(self) -> None:
        bar = self._touring.bar
        acts: dict[str, Callable[[], object]] = {
            "Right": lambda: bar.moved.emit(1),
            "Left": lambda: bar.moved.emit(-1),
            "Space": self.pace.toggle,
            "S": self._slow,
            "Q": bar.ask,
            "N": self.show_notes,
            "B": self._black,
            "?": self._tell_keys,
        }
        acts |= {digit: partial(self._type, digit) for digit in "1234567890"}
        for key, act in acts.items():
            shortcut = QShortcut(QKeySequence(key), self._window, context=Qt.ShortcutContext.ApplicationShortcut)
            shortcut.activated.connect(act)
            self._shortcuts.append(shortcut)

    def _hear(self, on: bool) -> None:
        """Of a key that the window has a use for too, only one hears."""
        own = {shortcut.key() for shortcut in self._shortcuts}
        for action in self._window.actions():
            if own & set(action.shortcuts()):
                action.setEnabled(not on)
        for shortcut in self._shortcuts:
            shortcut.setEnabled(on)

    def _type(self, digit: str) -> None:
        """A number that cannot become a longer one is gone to at once."""
        self._typed = self._typed + digit if self._typed else "10" if digit == "0" else digit
        if 10 * int(self._typed) > self._touring.known:
            self._go()
        else:
            self._typing.start()

    def _go(self) -> None:
        self._typing.stop()
        number, self._typed = int(self._typed), ""
        if 1 <= number <= self._touring.known:
            self._touring.go(number - 1)

    def _slow(self) -> None:
        self._touring.bar.say(self.pace.slower())

    def _black(self) -> None:
        if self.curtain is None:
            self.curtain = Curtain(self._window)
        self.curtain.toggle()

    def _tell_keys(self) -> None:
        if self.keys is None:
            self.keys = KeyCard(self._window, KEYS)
        self.keys.toggle()

    def _on_tour(self) -> None:
        tour = self._touring.tour
        if tour is not None:
            tour.scene_begun.connect(self.pace.restore)
        if self.notes is not None:
            self.notes.follow(tour)

    def _focus(self) -> None:
        """No field takes the keys."""
        bar = self._touring.bar
        shown = bar if bar.isVisible() else self._stage.pages.currentWidget()
        if shown is not None:
            shown.setFocus()
