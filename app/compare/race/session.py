"""The race between the Compare page's widgets and the engine: every lane up to one clock.

A frame tells the lanes what is new, as much as its time allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from pathlib import Path
from time import perf_counter

from PySide6.QtCore import QObject, Signal

from app import storage
from app.compare.choice import RaceChoice
from app.compare.race.lane_show import LaneShow, LaneState
from app.compare.race.report import Report
from app.compare.words import disturbance_words
from app.language import shipped, tr
from app.playback.player import span_of
from app.playback.speed import watchable
from app.session.lessee import Lessee, Phase
from app.session.loading.progress import LoadMeter
from app.session.session import Session
from engine import InvalidInput, Lane, Race, Trace, Workload, load_workload
from engine.compare import (
    RACE_SUFFIX,
    LaneFailed,
    LaneFinished,
    LaneLoading,
    LaneStarted,
    RaceEvent,
    RaceFinished,
    RaceResult,
    lane_names,
    save_race,
)
from engine.trace import Slo, busiest

BUDGET = 0.008
FILL = 1.25  # how much longer the shown span gets when a lane runs out of it
SHORTEST_SPAN = 1.0  # seconds that all lanes show while there is nothing to show


UNDER_WAY = (LaneState.WAITING, LaneState.LOADING, LaneState.STARTING)


class RaceSession(Lessee):
    """One race at a time. `clock` counts seconds since each lane's first prompt came in."""

    race_begun = Signal()  # `lanes` are new
    clock_moved = Signal(float)
    span_changed = Signal(float)  # seconds that all lanes show
    race_over = Signal(object)  # RaceResult
    reported = Signal(object)  # Report
    replay_changed = Signal(bool)  # whether the replay runs

    def __init__(self, session: Session, parent: QObject | None = None) -> None:
        super().__init__(session, parent)
        self.lanes: list[LaneShow] = []
        self.repeats = 1
        self.result: RaceResult | None = None
        self.report: Report | None = None
        self.file: Path | None = None  # where the race on show is kept
        self._asked = ""  # the choice it was begun with, as JSON
        self.clock = 0.0
        self.span = 0.0
        self.speed: float | None = None  # of the replay; None: so that it can be watched
        self.replaying = False
        self._slo, self._price = Slo(), 0.0
        self._live_lane: LaneShow | None = None
        self._started = 0.0
        self._meter = LoadMeter()
        self._turn = 0
        self._before = 0.0

    @property
    def longest(self) -> float:
        """Seconds of the longest lane there is."""
        return max((lane.span for lane in self.lanes), default=0.0)

    # -- the race -------------------------------------------------------------------------------------------------

    def start(self, choice: RaceChoice) -> None:
        """Begins the race, or tells why it is `refused`."""
        self._slo, self._price = choice.limits.slo, choice.price
        spec = self._session.spec
        lanes = [each.resolved(spec) for each in choice.lanes]

        def prepare() -> Race:
            workload = load_workload(choice.workload, model_folder=spec.source, count=choice.count or None)
            kv_tokens = choice.kv_tokens or None
            return Race(workload, lanes, repeats=choice.repeats, order=choice.order, kv_tokens=kv_tokens)

        def begin(race: Race) -> None:
            self._asked, self.file = choice.to_json(), None
            self._begin(race.lanes, race.workload, race.repeats)

        self._play(prepare, begin)

    def open(self, result: RaceResult, asked: str = "", file: Path | None = None) -> None:
        """Shows a race that was read from a file, as if it had just ended; without one, runs that were made apart."""
        self._asked, self.file = asked, file
        self._begin(result.lanes, result.workload, 1 + max((run.repeat for run in result.lane_runs), default=0))
        for run in result.lane_runs:
            lane = self.lanes[run.lane]
            if file is None and run.trace is not None:
                lane.total = run.trace.samples
            if run.finished and run.trace is not None:
                lane.finish(run.repeat, run.trace)
            elif run.error:
                lane.set_state(LaneState.FAILED, run.error)
            elif run.trace is not None:
                lane.playback.show(run.trace)
                lane.set_state(LaneState.RUNNING)
        self._finish(result)
        self._set_phase(Phase.OVER)
        self._session.start(self._judge())

    def run_again(self, lane: int) -> None:
        """Plays a lane's disturbed runs once more, each in the place of the one before it."""
        result = self.result
        if result is not None:
            self._play(lambda: Race.again(result, lane), lambda race: self._begin_again(self.lanes[lane]))

    def judge(self, slo: Slo, price: float = 0.0) -> None:
        """Reckons the finished race anew, against other limits, or at another price of an hour."""
        self._slo, self._price = slo, price
        if self.result is not None:
            self._session.start(self._judge())

    async def _judge(self) -> None:
        result, slo, price = self.result, self._slo, self._price
        if result is not None and any(result.traces(i) for i in range(len(result.lanes))):
            self.report = await self._session.off_thread(lambda: Report.of(result, slo, price))
            self.reported.emit(self.report)

    def close(self) -> None:
        super().close()
        for lane in self.lanes:
            lane.scope.stop()

    def _begin(self, lanes: Sequence[Lane], workload: Workload, repeats: int) -> None:
        self.pause()
        self.repeats, self.result, self.report = repeats, None, None
        names, total = lane_names(lanes), sum(a.params.branches for a in workload.arrivals)
        for lane in self.lanes:
            lane.scope.stop()
            lane.deleteLater()
        self.lanes = [LaneShow(i, lane, names[i], total) for i, lane in enumerate(lanes)]
        self._live_lane, self.clock = None, 0.0
        self._set_span(SHORTEST_SPAN)
        self.race_begun.emit()

    def _begin_again(self, lane: LaneShow) -> None:
        self.pause()
        self._live_lane, self.clock, self.file = None, 0.0, None
        lane.disturbance = ""
        lane.set_state(LaneState.STARTING)

    async def _after(self) -> None:
        await self._judge()
        await self._keep()

    async def _keep(self) -> None:
        """Writes the race as a file, as the Play page's runs are; a full disk costs only the file."""
        result = self.result
        if result is not None and any(lane.traces for lane in self.lanes):
            raced = shipped(result.workload.title) or result.workload.name
            file = storage.new_run_file(tr("race of {workload}", workload=raced), RACE_SUFFIX)
            try:
                await self._session.off_thread(partial(save_race, result, file, self._asked))
                self.file = file
            except InvalidInput as error:
                self._session.notice_raised.emit(str(error))

    # -- frames ---------------------------------------------------------------------------------------------------

    def _on_frame(self) -> None:
        now = perf_counter()
        self._hear()
        if self._live_lane is not None:
            self._move(now - self._started)
        elif self.replaying:
            self._replay(now)
        self._advance(now + BUDGET)
        self.clock_moved.emit(self.clock)
        if not self.busy and not self.replaying and all(lane.playback.caught_up for lane in self.lanes):
            self._timer.stop()
        self._before = now

    def _act(self, time: float, event: RaceEvent) -> None:
        match event:
            case LaneLoading(index, repeat, progress):
                lane = self.lanes[index]
                if lane.state is not LaneState.LOADING:
                    self._meter = LoadMeter()
                lane.repeat, lane.load = repeat, self._meter.read(progress)
                lane.set_state(LaneState.LOADING)
            case LaneStarted(index, repeat, run):
                self._go_live(self.lanes[index], repeat, run.trace, time)
            case LaneFinished(index, repeat, trace):
                self._live_lane = None
                self.lanes[index].finish(repeat, trace)
                self._set_span(self.longest or SHORTEST_SPAN)
                self._next()
            case LaneFailed(index, _, error):
                self._live_lane = None
                self.lanes[index].set_state(LaneState.FAILED, error)
                self._next()
            case RaceFinished(result):
                self._finish(result)

    def _go_live(self, lane: LaneShow, repeat: int, trace: Trace, started: float) -> None:
        lane.repeat, lane.load = repeat, None
        lane.playback.show(trace)
        self._live_lane, self._started = lane, started
        lane.set_state(LaneState.RUNNING)
        self._move(0.0)

    def _next(self) -> None:
        """The lane after this one gets ready while nothing is told about it."""
        waiting = next((lane for lane in self.lanes if lane.state is LaneState.WAITING), None)
        if waiting is not None and not self._stopping:
            waiting.set_state(LaneState.STARTING)

    def _finish(self, result: RaceResult) -> None:
        self.result, self._live_lane = result, None
        for lane in self.lanes:
            lane.disturbance = disturbance_words(result, lane.index)
            if lane.state is LaneState.RUNNING:
                lane.span = span_of(lane.playback.trace)
            if lane.state in (LaneState.RUNNING, *UNDER_WAY):
                lane.set_state(LaneState.STOPPED)
            if lane.state is not LaneState.FAILED:
                lane.settle()
        self._set_span(self.longest or SHORTEST_SPAN)
        self.show_end()
        self.race_over.emit(result)

    def _move(self, clock: float) -> None:
        """Sets the clock of all lanes; the one that runs shows all it has."""
        self.clock = clock
        if self._live_lane is not None and clock > 0.98 * self.span:
            self._set_span(clock * FILL)
        for lane in self.lanes:
            if lane is not self._live_lane:
                lane.playback.seek(clock)

    def _advance(self, deadline: float) -> None:
        """Lets every lane tell what is new; another one begins each time, so that none is starved."""
        count = len(self.lanes)
        self._turn += 1
        for i in range(count):
            left = deadline - perf_counter()
            self.lanes[(self._turn + i) % count].playback.advance(perf_counter() + max(0.0, left) / (count - i))

    def _set_span(self, span: float) -> None:
        if span != self.span:
            self.span = span
            self.span_changed.emit(span)

    # -- replay ---------------------------------------------------------------------------------------------------

    @property
    def can_replay(self) -> bool:
        return not self.running and self.longest > 0

    def play(self) -> None:
        """Goes on from the clock, or from the start when that is at the end."""
        if not self.can_replay:
            return
        if self.clock >= self.longest:
            self.seek(0.0)
        self.replaying, self._before = True, perf_counter()
        self._timer.start()
        self.replay_changed.emit(True)

    def pause(self) -> None:
        if self.replaying:
            self.replaying = False
            self.replay_changed.emit(False)

    def toggle(self) -> None:
        if self.replaying:
            self.pause()
        else:
            self.play()

    def seek(self, clock: float) -> None:
        """Shows every lane as it was then."""
        if self.can_replay:
            self._move(min(max(clock, 0.0), self.longest))
            self.clock_moved.emit(self.clock)
            self._timer.start()

    @property
    def busiest(self) -> float:
        """The clock at which the lanes computed most, all together."""
        return busiest([lane.playback.trace for lane in self.lanes])

    def show_end(self) -> None:
        """Every lane as it was at its end."""
        self.clock = self.longest
        for lane in self.lanes:
            lane.playback.seek(inf)
        self._timer.start()

    def _replay(self, now: float) -> None:
        clock = self.clock + (now - self._before) * (self.speed or watchable(self.longest))
        if clock >= self.longest:
            self.pause()
            self.show_end()
        else:
            self._move(clock)
