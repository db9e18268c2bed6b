"""What a timeline's tracks draw of each step: its tokens of four kinds, and when each phase ran. No Qt in here.

A column of pixels shows exact means over all that lies in it. For phases these are differences of running totals, so
that their cost does not grow with the steps in sight.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from app.inside.columns import Columns, Numbers
from app.inside.timeline.axis import Axis
from app.plot.folds import NONE, Folds
from engine.trace import Array, Kind, Step

TOKENS = ("decode", "prefill", "wasted", "padding")
LAUNCH = ("plan", "draft", "prepare", "forward", "sample")  # one after another from the step's start
TAIL = ("wait", "commit", "record")  # wait and commit end at the step's end, record follows
PHASES = (*LAUNCH, *TAIL)
COMPUTING = ("forward", "sample")
SHORT = 0.5  # of a step: a longer while until the next one is no part of it


@dataclass(frozen=True, slots=True)
class Row:
    """One step. Times in seconds of the timeline; `tokens` by `TOKENS`, `seconds` by `PHASES`. `graph`: rows, or in
    a step with prompts tokens, of the graph that was replayed; `measured`: seconds by the GPU's own clock; both 0
    without one."""

    step: int
    started: float
    ended: float
    prefill_rows: int
    decode_rows: int
    held_rows: int
    waiting: int
    graph: int
    measured: float
    tokens: Mapping[str, int]
    seconds: Mapping[str, float]
    attention: float

    @property
    def rows(self) -> int:
        return self.prefill_rows + self.decode_rows + self.held_rows

    @property
    def computed(self) -> int:
        """All that the model was given, pad tokens among them."""
        return sum(self.tokens.values())


@dataclass(frozen=True, slots=True)
class TokenColumns:
    """Tokens a step in each column of pixels: the mean of each kind [4, columns] over the time in which anything was
    computed, and the `most` in any step of the column. `busy` is false where no step is."""

    mean: Array
    most: Array
    busy: Array


@dataclass(frozen=True, slots=True)
class Segments:
    """Phases in columns: which of `PHASES`, the place of its step, when it began and ended."""

    phase: Array
    place: Array
    begin: Array
    end: Array


class _Spent(Columns):
    """Running totals of seconds, each one longer than the steps: what was spent before a step."""

    plan, draft, prepare, forward, sample = (Numbers(np.float64) for _ in LAUNCH)
    wait, commit, record = (Numbers(np.float64) for _ in TAIL)
    attention, device = Numbers(np.float64), Numbers(np.float64)


class TimelineSteps(Columns):
    """All steps of a trace, in order; about 195 bytes a step. `begin` and `end` are as the slots show them, `waits` is
    when wait begins, `computing` when the device may have begun, `measured` how long it computed by its own clock."""

    step, waiting, graph = Numbers(np.int64), Numbers(np.int32), Numbers(np.int32)
    begin, end, started, ended = (Numbers(np.float64) for _ in range(4))
    prefill_rows, decode_rows, held_rows = (Numbers(np.int32) for _ in Kind)
    emitted = Numbers(np.int32)
    decode, prefill, wasted, padding = (Numbers(np.int32) for _ in TOKENS)
    waits, computing, measured = (Numbers(np.float64) for _ in range(3))

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets everything: another trace begins."""
        super().__init__()
        self._spent, self._sums = _Spent(), [0.0] * len(_Spent.names)
        self._spent.append(*self._sums)
        self._last = (-np.inf,) * 3  # of the last step: when it started, began to wait, and was computed

    @property
    def totals(self) -> Array:
        """All tokens of each step, pad tokens among them."""
        return np.sum([getattr(self, kind) for kind in TOKENS], axis=0)

    def feed(self, step: Step, begin: float, end: float, origin: float) -> None:
        """The next step; `begin` and `end` are those that the slots show, seconds after `origin`."""
        last_started, last_waits, last_done = self._last
        started, ended = max(step.started - origin, last_started), step.ended - origin
        rows = np.bincount(step.kind, minlength=len(Kind)).tolist()
        useful = np.bincount(step.kind, step.count - step.wasted, minlength=len(Kind))
        wasted = step.wasted.sum() + useful[Kind.HELD]
        tokens = (useful[Kind.DECODE], useful[Kind.PREFILL], wasted, step.padding.sum())
        seconds = {name: max(0.0, step.seconds.get(name, 0.0)) for name in PHASES}
        waits = max(ended - seconds["wait"] - seconds["commit"], last_waits)
        computing = max(started + seconds["plan"] + seconds["draft"] + seconds["prepare"], last_done)
        done = max(computing, ended - seconds["commit"])
        if step.device:
            computing = max(computing, done - step.device)
        times = (begin, end, started, ended)
        counts = (*rows, len(step.token), *map(int, tokens))
        self.append(step.step, step.waiting, step.graph, *times, *counts, waits, computing, step.device)
        seconds |= {"attention": min(step.attention, seconds["forward"]), "device": done - computing}
        self._sums = [so_far + seconds[name] for so_far, name in zip(self._sums, _Spent.names)]
        self._spent.append(*self._sums)
        self._last = started, waits, done

    def row(self, place: int) -> Row:
        """The step of a place. Raises IndexError where there is none."""
        known, here = self.numbers_at(place), np.array((place,))
        seconds = {name: float(self._length(name, here)[0]) for name in (*PHASES, "attention")}
        tokens = {name: known[name] for name in TOKENS}
        of_row = {field.name: known[field.name] for field in fields(Row) if field.name in known}
        return Row(**of_row, tokens=tokens, attention=seconds.pop("attention"), seconds=seconds)

    def waiting_at(self, values: Array, axis: Axis, folds: Folds = NONE) -> Array:
        """How many waited after the last step before each value of the axis; nothing where none was before or is to
        come."""
        if axis is Axis.TIME:
            times = folds.times(values)
            places = np.searchsorted(self.end, times, "right") - 1
            known = (places >= 0) & (times <= self.end[-1])
        else:
            places = values.astype(np.int64)
            known = (places >= 0) & (places < len(self))
        return np.where(known, self.waiting[np.clip(places, 0, len(self) - 1)], 0)

    def in_sight(self, begin: float, end: float) -> tuple[int, int]:
        """The places `[first, last)` of the steps that overlap these seconds."""
        first = int(np.searchsorted(self.end, begin, "right"))
        return first, max(first, int(np.searchsorted(self.begin, end, "left")))

    # -- tokens ---------------------------------------------------------------------------------------------------

    def tokens(self, edges: Array, axis: Axis, folds: Folds = NONE) -> TokenColumns:
        """What lies between each two of `edges` [columns + 1], values of the axis."""
        columns = len(edges) - 1
        if axis is Axis.TIME:
            first, last = self.in_sight(*folds.times((edges[0], edges[-1])).tolist())
            begins, ends = (folds.values(times[first:last]) for times in (self.begin, self.end))
        else:
            first, last = max(0, int(edges[0])), min(len(self), int(np.ceil(edges[-1])))
            begins = np.arange(first, last, dtype=np.float64)
            ends = begins + 1
        if last <= first:
            return TokenColumns(np.zeros((len(TOKENS), columns)), np.zeros(columns), np.zeros(columns, bool))
        lengths = ends - begins
        place = np.maximum(np.searchsorted(begins, edges, "right") - 1, 0)
        into = np.clip(edges - begins[place], 0.0, lengths[place])
        busy = np.diff(_until(lengths, np.ones(1), place, into))
        shown = busy > 0
        weight = 1 / np.where(shown, busy, 1.0)
        each = [getattr(self, kind)[first:last] for kind in TOKENS]
        mean = np.stack([np.diff(_until(lengths, tokens, place, into)) * weight for tokens in each])
        mean[:, ~shown] = 0.0
        return TokenColumns(mean, self._most(np.sum(each, axis=0), begins, edges, mean), shown)

    def _most(self, totals: Array, begins: Array, edges: Array, mean: Array) -> Array:
        """The most in any step that begins in a column, or goes through it."""
        most = mean.sum(axis=0)
        column = np.searchsorted(edges, begins, "right") - 1
        inside = np.flatnonzero((column >= 0) & (column < len(most)))
        if len(inside):
            own, starts = np.unique(column[inside], return_index=True)
            most[own] = np.maximum(most[own], np.maximum.reduceat(totals[inside], starts))
        return most

    # -- phases ---------------------------------------------------------------------------------------------------

    def phases(self, times: Array) -> dict[str, Array]:
        """Seconds of each phase before each of these moments; "attention" are those of forward spent in it."""
        return {name: self._spent_until(name, times) for name in (*PHASES, "attention")}

    def whole(self, times: Array) -> Array:
        """These spans [columns, 2] grown to whole steps, each with the short while after it."""
        begins, ends = self.begin, self.end
        if not len(begins):
            return times
        place = np.maximum(np.searchsorted(begins, times, "right") - 1, 0)
        begin, end = begins[place], ends[place]
        after = begins[np.minimum(place + 1, len(begins) - 1)]
        end = np.where((after > end) & (after - end <= SHORT * (end - begin)), after, end)
        grown = np.stack((begin[:, 0], end[:, 1]), axis=1)
        return np.where((times >= begin) & (times < end), grown, times)

    @property
    def clocked(self) -> bool:
        """True where a device's own clock told how long it computed."""
        return len(self) > 0 and self.measured[-1] > 0

    def device(self, times: Array) -> Array:
        """Seconds before each of these moments in which a device computed: by its own clock, up to where the host had
        the tokens. Without such a clock it may have computed from a forward pass's launch on, and no longer."""
        return self._spent_until("device", times)

    def _spent_until(self, name: str, times: Array) -> Array:
        of = "forward" if name == "attention" else name
        spent, whole = getattr(self._spent, name), getattr(self._spent, of)
        before: tuple[str, ...] = ()
        if name == "device":
            starts = self.computing
        elif name in TAIL:
            starts, before = self.waits, TAIL[: TAIL.index(name)]
        else:
            starts, before = self.started, LAUNCH[: LAUNCH.index(of)]
        if not len(self):
            return np.zeros(times.shape)
        place = np.maximum(np.searchsorted(starts, times, "right") - 1, 0)
        begins = starts[place]
        for phase in before:
            begins = begins + self._length(phase, place)
        length = whole[place + 1] - whole[place]
        share = np.clip(times - begins, 0.0, length) / np.maximum(length, 1e-12)
        return np.asarray(spent[place] + share * (spent[place + 1] - spent[place]))

    def _length(self, phase: str, place: Array) -> Array:
        spent = getattr(self._spent, phase)
        return np.asarray(spent[place + 1] - spent[place])

    def segments(self, first: int, last: int) -> Segments:
        """Every phase of the steps `[first, last)` that took any time."""
        places = np.arange(first, last)
        phases, begins, ends = [], [], []
        for names, at in ((LAUNCH, self.started[first:last]), (TAIL, self.waits[first:last])):
            for name in names:
                end = at + self._length(name, places)
                phases.append(np.full(len(places), PHASES.index(name)))
                begins.append(at)
                ends.append(end)
                at = end
        columns = (np.concatenate(phases), np.tile(places, len(PHASES)), np.concatenate(begins), np.concatenate(ends))
        took = columns[3] > columns[2]
        return Segments(*(column[took] for column in columns))

    def busy(self, begin: float, end: float, on_device: bool) -> float:
        """How many seconds of these something was computed; on a device: at most so many."""
        times = np.array((begin, end))
        if on_device:
            return float(np.diff(self.device(times))[0])
        return float(sum(np.diff(self._spent_until(name, times))[0] for name in COMPUTING))


def _until(lengths: Array, tokens: Array, place: Array, into: Array) -> Array:
    """The integral of a value that is constant in each step, up to `into` the step of each place."""
    before = np.concatenate(([0.0], np.cumsum(lengths * tokens)))
    return np.asarray(before[place] + into * np.broadcast_to(tokens, lengths.shape)[place])
