"""The one time cursor of a page: plays, pauses, steps, seeks, and goes back to following what is live."""

from math import inf
from time import perf_counter

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QToolButton

from app.language import tr
from app.playback.scope import Scope
from app.playback.speed import SpeedChoice
from app.ui.controls import Slider, button
from app.ui.layout.boxes import fill, named
from app.ui.layout.zoomed import sized
from app.ui.line import Line
from app.ui.look import theme
from app.ui.look.backstage import Backstage

STEPS = 2000
PAUSE = 0.1  # seconds between two looks at a trace that grows
KEYS = tr("Space plays and pauses, comma and period step, F follows.")


class CursorBar(QFrame):
    """Moves a scope. Disabled while its trace has no step."""

    inside_asked = Signal(bool)  # all panels that look inside, or the usual ones

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        named(self, "cursor_bar", "panel", said=tr("Time cursor"))
        self.setAccessibleDescription(KEYS)
        self.scope = scope
        self._told = 0.0
        self.back = self._tool("cursor_back", "‹", tr("One step back (,)"), lambda: scope.step_by(-1))
        self.play = self._tool("cursor_play", "▶", tr("Play from here, or pause (Space)"), scope.toggle)
        self.on = self._tool("cursor_on", "›", tr("One step on (.)"), lambda: scope.step_by(1))
        self.slider = Slider("cursor_slider", tr("Moment on show"), STEPS)
        self.words = Line("cursor_words", Qt.AlignmentFlag.AlignRight)
        self.speed = SpeedChoice("cursor_speed", tr("Speed of playing"))
        self.follow = button("cursor_follow", tr("Live"), role="quiet", tip=tr("Follow the newest (F)"), checkable=True)
        panels = tr("All panels that look inside at once, or the usual ones (Ctrl+I)")
        self.inside = button(
            "see_inside", tr("See inside"), self.inside_asked, role="quiet", tip=panels, checkable=True
        )
        steps, words = (self.back, self.play, self.on, (self.slider, 1)), (self.words, self.speed)
        fill(QHBoxLayout(self), *steps, *words, self.follow, self.inside, margins=(8, 2, 8, 2), spacing=6)
        Backstage(self, self.back, self.on, self.speed, self.follow, self.inside)
        self.slider.valueChanged.connect(self._on_slid)
        self.speed.currentIndexChanged.connect(self._on_speed)
        self.follow.clicked.connect(lambda checked=False: scope.follow())
        scope.moved.connect(self._tell)
        scope.playing_changed.connect(self._tell)
        scope.trace_changed.connect(self._tell)
        scope.attach(self)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()
        self._tell()

    def _tool(self, name: str, text: str, tip: str, act: object) -> QToolButton:
        tool = sized(named(QToolButton(), name, said=tip, tip=tip), width=40 if text == "▶" else 28)  # for two bars
        tool.setText(text)
        tool.setAutoRepeat(text != "▶")
        tool.clicked.connect(act)
        return tool

    def _on_theme(self) -> None:
        self.words.set_width(theme.px(264))

    def _tell(self, *changed: object) -> None:
        scope = self.scope
        some, over = scope.steps > 0, scope.trace.complete
        for control in (self.back, self.play, self.on, self.slider, self.speed):
            control.setEnabled(some)
        length = scope.end - scope.origin
        share = (scope.now - scope.origin) / length if length > 0 else 1.0
        if not self.slider.isSliderDown():
            self.slider.show_place(round(STEPS * min(max(share, 0.0), 1.0)) if some else 0)
        self.play.setText("❚❚" if scope.playing else "▶")
        if scope.speed is None:
            self.speed.tell(scope.pace if some else 1.0)
        self.follow.setText(tr("End") if over else tr("Live"))
        self.follow.setChecked(scope.following)
        step = scope.step
        number = tr("step {step:,}", step=step.step) if step is not None else tr("before the first step")
        moment = tr("{step}  ·  {at:.2f} of {all:.2f} s", step=number, at=scope.now - scope.origin, all=length)
        begun = scope.begun and not over
        nothing = tr("the first step is being computed") if begun else tr("nothing has run yet")
        self.words.say(moment if some else nothing)

    def _on_slid(self, value: int) -> None:
        scope = self.scope
        scope.seek(inf if value == STEPS else scope.origin + (scope.end - scope.origin) * value / STEPS)

    def _on_speed(self) -> None:
        self.scope.speed = self.speed.currentData()
        self._tell()

    def advance(self, deadline: float) -> None:
        """It keeps nothing of the records: the scope knows its steps."""

    def refresh(self) -> bool:
        """Costs no drawing of a panel: at most its few words are new, ten times a second."""
        now = perf_counter()
        if now >= self._told + PAUSE:
            self._told = now
            self._tell()
        return False

    def catch_up(self) -> None:
        self._tell()


def cursor_key(scope: Scope, event: QKeyEvent) -> bool:
    """Does what a key of the cursor asks for; False for every other key."""
    if event.modifiers() & ~(Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.KeypadModifier):
        return False
    match event.key():
        case Qt.Key.Key_Space:
            scope.toggle()
        case Qt.Key.Key_Comma:
            scope.step_by(-1)
        case Qt.Key.Key_Period:
            scope.step_by(1)
        case Qt.Key.Key_F:
            scope.follow()
        case _:
            return False
    return True
