"""One trace and one moment of it: what all panels of a view show."""

import sys
from math import inf
from time import perf_counter
from typing import Protocol

import numpy as np
from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.language import tr
from app.playback.speed import watchable
from engine import InvalidInput, Trace
from engine.trace import Array, Column, Step

FRAME_MS = 33
BUDGET = 0.006  # seconds a frame for all panels together
IDLE = 1.0  # seconds without a request that playing passes over; the timeline folds them
ROUNDING = 1e-9  # seconds: a moment that was told relative to another zero may miss its step by an ulp


class Attached(Protocol):
    """What a scope brings up to date, frame by frame."""

    def isVisible(self) -> bool: ...

    def accessibleName(self) -> str: ...

    def advance(self, deadline: float) -> None:
        """Takes records that are new until the clock (`perf_counter`) passes the deadline, but a few in any case."""
        ...

    def refresh(self) -> bool:
        """Draws what is new, if anything is; returns whether it did, but not when it only followed the cursor."""
        ...

    def catch_up(self) -> None:
        """Takes in and draws everything now."""
        ...


class Driver(Protocol):
    """Decides where a scope goes."""

    def drive(self, moment: float) -> None: ...


class Scope(QObject):
    """Times are seconds from the trace's start. While it follows, the moment is infinite and panels show the newest.

    Panels that are attached and in sight take new records and are drawn in turn, as many a frame as its time allows.
    A closed panel costs nothing: it catches up when it is opened. Where `driver` is set, it is told of every move that
    a person asks for and decides; else the scope moves by itself.
    """

    trace_changed = Signal()  # another trace: forget everything
    moved = Signal()  # the moment is another one
    selected = Signal(int)  # request; -1 for none
    playing_changed = Signal(bool)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.trace = Trace()
        self.moment = inf
        self.request = -1  # the selected one
        self.origin = 0.0  # when the first request came in: what panels show as zero
        self.speed: float | None = None  # of playing; None: so that whatever is played can be watched
        self.driver: Driver | None = None
        self._places, self._begins, self._ends = Column(np.int64), Column(np.float64), Column(np.float64)
        self._panels: list[Attached] = []
        self._broken: list[Attached] = []  # until there is another trace
        self._turn = 0
        self._playing = False
        self._played = 0.0
        self._timer = QTimer(self, interval=FRAME_MS, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._on_frame)
        self._stopped = False

    # -- the trace ------------------------------------------------------------------------------------------------

    def show(self, trace: Trace) -> None:
        """This trace from its beginning, as it grows."""
        self.trace, self.moment, self.origin = trace, inf, 0.0
        self._places, self._begins, self._ends = Column(np.int64), Column(np.float64), Column(np.float64)
        self._set_playing(False)
        self._panels += self._broken
        self._broken.clear()
        self.trace_changed.emit()
        self.select(-1)
        self.moved.emit()

    @property
    def begun(self) -> bool:
        """Whether a request has come in; its first step may still be computed."""
        return self.trace.origin is not None

    @property
    def step_begins(self) -> Array:
        """When each step was launched, in order."""
        return self._begins.values

    @property
    def step_ends(self) -> Array:
        return self._ends.values

    @property
    def steps(self) -> int:
        """How many steps are known."""
        return self._ends.count

    def step_at(self, place: int) -> Step:
        """The step of this place among all steps: 0 is the first. Raises IndexError where there is none."""
        if not 0 <= place < self.steps:
            raise IndexError(f"step {place} of {self.steps}")
        step = self.trace.records[int(self._places.values[place])]
        assert isinstance(step, Step)
        return step

    def place_at(self, moment: float) -> int:
        """The place of the last step that had ended then; -1 before the first."""
        return int(np.searchsorted(self.step_ends, moment + ROUNDING, "right")) - 1

    @property
    def place(self) -> int:
        """The place of the step at the cursor: the last one that had ended; -1 before the first."""
        return self.place_at(self.moment)

    @property
    def step(self) -> Step | None:
        """The step at the cursor, as far as the steps are known."""
        place = self.place
        return self.step_at(place) if place >= 0 else None

    @property
    def end(self) -> float:
        """When the last step so far ended."""
        return float(self.step_ends[-1]) if self.steps else self.origin

    @property
    def now(self) -> float:
        """The moment, or the newest while it follows."""
        return min(self.moment, self.end)

    # -- the cursor -----------------------------------------------------------------------------------------------

    @property
    def following(self) -> bool:
        return self.moment == inf

    @property
    def playing(self) -> bool:
        return self._playing

    def seek(self, moment: float) -> None:
        """A person goes to this moment; what plays is paused."""
        self._set_playing(False)
        self._go(moment)

    def show_at(self, moment: float) -> None:
        """Shows the trace as it stood then; infinite: as it grows."""
        if moment != self.moment:
            self.moment = moment
            self.moved.emit()

    def follow(self) -> None:
        """Goes to the newest and stays there."""
        self.seek(inf)

    def step_by(self, steps: int) -> None:
        """Goes so many steps on, or back."""
        self.take_in()
        if self.steps:
            place = min(max(self.place + steps, 0), self.steps - 1)
            self.seek(float(self.step_ends[place]))

    @property
    def pace(self) -> float:
        """The speed of playing where the cursor is: each span in which requests are there is played by itself."""
        if self.speed is not None:
            return self.speed
        begin, end = self.trace.presence.span(min(self.moment, self.end - ROUNDING))
        return watchable(end - begin)

    def toggle(self) -> None:
        """Plays on from the cursor at `pace`, or pauses. At the end of a run that is over, plays it from the start; at
        that of one that may go on, what came in last."""
        if self._playing:
            self._set_playing(False)
        elif self.following and self.trace.presence.there and not self.trace.complete:
            self.seek(self.end)
        else:
            if self.now >= self.end:
                self.seek(self.origin if self.trace.complete else self.trace.presence.span(self.end - ROUNDING)[0])
            self._played = perf_counter()
            self._set_playing(True)

    def _set_playing(self, playing: bool) -> None:
        if playing != self._playing:
            self._playing = playing
            self.playing_changed.emit(playing)

    def _play(self) -> None:
        now = perf_counter()
        moment = self.moment + (now - self._played) * self.pace
        self._played = now
        begin, _ = self.trace.presence.span(moment)
        if self.driver is None and begin - moment >= IDLE:
            moment = begin
        if moment >= self.end:
            self._set_playing(False)
            moment = inf
        self._go(moment)

    def _go(self, moment: float) -> None:
        if self.driver is not None:
            self.driver.drive(moment)
        else:
            self.show_at(moment)

    def select(self, request: int) -> None:
        """Selects a request in all panels; -1: none."""
        if request != self.request:
            self.request = request
            self.selected.emit(request)

    # -- the panels -----------------------------------------------------------------------------------------------

    def attach(self, panel: Attached) -> None:
        """From now on the panel is brought up to date while it is in sight."""
        self._panels.append(panel)
        if not self._stopped:
            self._timer.start()

    def detach(self, panel: Attached) -> None:
        (self._broken if panel in self._broken else self._panels).remove(panel)
        if not self._panels:
            self._timer.stop()

    def stop(self) -> None:
        """No more frames: the view closes."""
        self._stopped = True
        self._timer.stop()

    def catch_up(self) -> None:
        """Takes in and draws everything now, however long it takes: for pictures and tests."""
        self.take_in()
        for panel in self._panels:
            if panel.isVisible():
                panel.catch_up()

    def _on_frame(self) -> None:
        deadline = perf_counter() + BUDGET
        self.take_in()
        if self._playing:
            self._play()
        panels = [panel for panel in self._panels if panel.isVisible()]
        for i in range(len(panels)):
            panel = panels[(self._turn + i) % len(panels)]
            try:
                panel.advance(deadline)
                drawn = panel.refresh()
            except InvalidInput:  # the run's file has changed: who opened it hears of it, and opens it anew
                break
            except Exception as error:  # else it would raise in every frame to come
                self._broken.append(panel)
                self._panels.remove(panel)
                error.add_note(tr("{panel} stands still.", panel=panel.accessibleName()))
                sys.excepthook(type(error), error, error.__traceback__)
                break
            # of those that show what is new, one a frame: its painting follows later and is not in the budget
            if drawn or perf_counter() > deadline:
                self._turn = (self._turn + i + 1) % len(panels)
                break

    def take_in(self) -> None:
        """Takes over the places and times of the steps that are new."""
        log, known = self.trace.records, self._ends.count
        places, begins, ends = log.step_places[known:], log.step_begins[known:], log.step_ends[known:]
        new = min(len(places), len(begins), len(ends))  # more records may come in meanwhile
        self._places.extend(places[:new], new)
        self._begins.extend(begins[:new], new)
        self._ends.extend(ends[:new], new)
        self.origin = self.trace.origin or 0.0
