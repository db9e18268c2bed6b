"""The sweep between the Compare page's widgets and the engine: its points, what was measured, what is under way."""

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

from PySide6.QtCore import QObject, Signal

from app.compare.choice import RaceChoice
from app.language import tr
from app.session.lessee import Lessee
from app.session.session import Session
from engine import InvalidInput, Run, Sweep, Trace, load_workload, measure
from engine.compare import (
    LaneFailed,
    LaneFinished,
    LaneLoading,
    LaneStarted,
    SweepEvent,
    SweepFinished,
    SweepOutcome,
    SweepResult,
)
from engine.trace import Metrics, Slo

N = TypeVar("N", int, float)


def numbers(name: str, text: str, read: Callable[[str], N]) -> tuple[N, ...]:
    """Numbers with commas between them. Raises InvalidInput."""
    try:
        found = tuple(read(part) for part in text.replace(";", ",").split(",") if part.strip())
    except ValueError:
        found = ()
    if not found:
        remedy = tr("write numbers with commas between them, such as 1, 2, 4, 8")
        raise InvalidInput(f"{name}={text!r}: {remedy}")
    return found


class SweepSession(Lessee):
    """One sweep at a time. `result` holds what was measured so far, also while it runs."""

    begun = Signal()
    progressed = Signal()  # what is under way
    measured = Signal()  # `result` has more

    def __init__(self, session: Session, parent: QObject | None = None) -> None:
        super().__init__(session, parent)
        self.result: SweepResult | None = None
        self._sweep: Sweep | None = None
        self._point: int | None = None
        self._run: Run | None = None
        self._loading = ""
        self._started = 0.0
        self._metrics: dict[int, list[Metrics]] = {}
        self._errors: dict[int, str] = {}

    def start(self, choice: RaceChoice) -> None:
        """Begins the sweep, or tells why it is `refused`."""
        spec = self._session.spec
        lanes = [each.resolved(spec) for each in choice.lanes]

        def prepare() -> Sweep:
            workload = load_workload(choice.workload, model_folder=spec.source, count=choice.count or None)
            return Sweep(
                workload,
                lanes,
                sizes=() if choice.by_rate else numbers("sizes", choice.sizes, int),
                rates=numbers("rates", choice.rates, float) if choice.by_rate else (),
                repeats=choice.repeats,
                slo=choice.limits.slo,
                price=choice.price,
                kv_tokens=choice.kv_tokens or None,
            )

        self._play(prepare, self._begin)

    @property
    def points(self) -> int:
        return len(self._sweep.points) if self._sweep is not None else 0

    @property
    def done(self) -> int:
        """Points that are measured or failed."""
        return len(self.result.outcomes) if self.result is not None else 0

    def words(self) -> str:
        """ "7 of 12  ·  continuous 8  ·  running 2.1 s, 12 of 64 finished"."""
        sweep, at = self._sweep, self._point
        if sweep is None or at is None or not self.running:
            return ""
        point = sweep.points[at]
        if sweep.by_rate:
            what = tr("{rate:g} req/s", rate=point.setting)
        else:
            what = tr("batch {size:g}", size=point.setting)
        parts = [tr("{n} of {all}", n=at + 1, all=len(sweep.points))]
        parts.append(f"{point.lane.name or point.lane.config.mode}, {what}")
        if self._loading:
            parts.append(tr("loading the model: {stage}", stage=self._loading))
        elif self._run is not None:
            spent = perf_counter() - self._started
            words = tr(
                "running {seconds:.1f} s, {n:,} of {all:,} finished",
                seconds=spent,
                n=self._run.finished,
                all=len(point.workload),
            )
            parts.append(words)
        else:
            parts.append(tr("getting ready"))
        return "  ·  ".join(parts)

    def _begin(self, sweep: Sweep) -> None:
        self._sweep, self._run, self._loading = sweep, None, ""
        self._point = 0
        self._metrics, self._errors = {}, {}
        self.result = self._so_far()
        self.begun.emit()

    def _act(self, time: float, event: SweepEvent) -> None:
        match event:
            case LaneLoading(index, _, progress):
                self._point, self._loading = index, progress.stage
            case LaneStarted(index, _, run):
                self._point, self._run, self._loading, self._started = index, run, "", time
            case LaneFinished(index, _, trace):
                self._run = None
                self._session.start(self._measure(index, trace))
                self._next(index)
            case LaneFailed(index, _, error):
                self._run = None
                self._errors[index] = error
                self._changed()
                self._next(index)
            case SweepFinished(result):
                self.result, self._point = result, None
                self.measured.emit()

    def _next(self, index: int) -> None:
        assert self._sweep is not None
        if index + 1 < self.points:
            self._point = index + 1

    async def _measure(self, index: int, trace: Trace) -> None:
        sweep = self._sweep
        slo, price = (sweep.slo, sweep.price) if sweep is not None else (Slo(), 0.0)
        metrics = await self._session.off_thread(lambda: measure(trace, slo, price=price))
        if sweep is self._sweep and self._point is not None:  # else the whole result is there
            self._metrics.setdefault(index, []).append(metrics)
            self._changed()

    def _changed(self) -> None:
        self.result = self._so_far()
        self.measured.emit()

    def _so_far(self) -> SweepResult:
        sweep = self._sweep
        assert sweep is not None
        outcomes = [
            SweepOutcome(point, tuple(self._metrics.get(i, ())), self._errors.get(i, ""))
            for i, point in enumerate(sweep.points)
            if i in self._metrics or i in self._errors
        ]
        return SweepResult(sweep.workload, sweep.lanes, sweep.by_rate, tuple(outcomes), sweep.slo, cancelled=True)

    def _on_frame(self) -> None:
        self._hear()
        self.progressed.emit()
        if not self.busy:
            self._timer.stop()
