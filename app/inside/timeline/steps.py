"""What a timeline's tracks draw of each step: its tokens of four kinds, and when each phase ran. No Qt in here.

A column of pixels shows exact means over all that lies in it. For phases these are differences of running totals, so
that their cost does not grow with the steps in sight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from app.inside.timeline.axis import Axis
from engine.trace import Array, Column, Kind, Step

TOKENS = ("decode", "prefill", "wasted", "padding")
LAUNCH = ("plan", "prepare", "forward", "sample")  # one after another from the step's start
TAIL = ("wait", "commit", "record")  # wait and commit end at the step's end, record follows
PHASES = (*LAUNCH, *TAIL)
COMPUTING = ("forward", "sample")
SHORT = 0.5  # of a step: a longer while until the next one is no part of it


@dataclass(frozen=True, slots=True)
class Row:
    """One step. Times in seconds of the timeline; `tokens` by `TOKENS`, `seconds` by `PHASES`."""

    step: int
    started: float
    ended: float
    prefill_rows: int
    decode_rows: int
    held_rows: int
    waiting: int
    tokens: Mapping[str, int]
    seconds: Mapping[str, float]
    attention: float
    graph: int = 0  # rows of the CUDA graph that was replayed
    measured: float = 0.0  # seconds by the GPU's own clock, 0 without one

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


class TimelineSteps:
    """Columns of all steps of a trace, in order; about 183 bytes a step."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets everything: another trace begins."""
        self._number = Column(np.int64)
        self._begin, self._end = Column(np.float64), Column(np.float64)  # as the slots show it
        self._started, self._ended = Column(np.float64), Column(np.float64)
        self._rows = tuple(Column(np.int32) for _ in Kind)
        self._waiting, self._graph, self._measured = Column(np.int32), Column(np.int32), Column(np.float64)
        self._tokens = tuple(Column(np.int32) for _ in TOKENS)
        self._tail = Column(np.float64)  # when wait begins
        # Running totals of seconds, each one longer than the steps: what was spent before a step.
        self._spent = {name: _totals() for name in (*PHASES, "attention", "device")}
        self._device = Column(np.float64)  # when the device may have begun

    def __len__(self) -> int:
        return self._number.count

    @property
    def numbers(self) -> Array:
        return self._number.values

    @property
    def ended(self) -> Array:
        return self._ended.values

    @property
    def waiting(self) -> Array:
        return self._waiting.values

    @property
    def totals(self) -> Array:
        """All tokens of each step, pad tokens among them."""
        return np.sum([column.values for column in self._tokens], axis=0)

    def feed(self, step: Step, begin: float, end: float, origin: float) -> None:
        """The next step; `begin` and `end` are those that the slots show, seconds after `origin`."""
        started, ended = step.started - origin, step.ended - origin
        self._number.append(step.step)
        self._begin.append(begin)
        self._end.append(end)
        self._started.append(max(started, self._started.values[-1]) if self._started.count else started)
        self._ended.append(ended)
        self._waiting.append(step.waiting)
        self._graph.append(step.graph)
        self._measured.append(step.device)
        rows = np.bincount(step.kind, minlength=len(Kind))
        for column, count in zip(self._rows, rows.tolist()):
            column.append(count)
        useful = np.bincount(step.kind, step.count - step.wasted, minlength=len(Kind))
        tokens = (useful[Kind.DECODE], useful[Kind.PREFILL], step.wasted.sum() + useful[Kind.HELD], step.padding.sum())
        for kind, tokens_of in zip(self._tokens, tokens):
            kind.append(int(tokens_of))
        seconds = {name: max(0.0, step.seconds.get(name, 0.0)) for name in PHASES}
        tail = ended - seconds["wait"] - seconds["commit"]
        self._tail.append(max(tail, self._tail.values[-1]) if self._tail.count else tail)
        device = self._started.values[-1] + seconds["plan"] + seconds["prepare"]
        if self._device.count:
            spent = self._spent["device"].values
            device = max(device, self._device.values[-1] + spent[-1] - spent[-2])
        done = max(device, ended - seconds["commit"])
        if step.device:
            device = max(device, done - step.device)
        self._device.append(device)
        seconds |= {"attention": min(step.attention, seconds["forward"]), "device": done - device}
        for name, total in self._spent.items():
            total.append(total.values[-1] + seconds[name])

    def row(self, place: int) -> Row:
        """The step of a place. Raises IndexError where there is none."""
        if not 0 <= place < len(self):
            raise IndexError(f"step {place} of {len(self)}")
        prefill, decode, held = (int(column.values[place]) for column in self._rows)
        here = np.array((place,))
        seconds = {name: float(self._length(name, here)[0]) for name in PHASES}
        return Row(
            int(self._number.values[place]), float(self._started.values[place]), float(self._ended.values[place]),
            prefill, decode, held, int(self._waiting.values[place]),
            {name: int(column.values[place]) for name, column in zip(TOKENS, self._tokens)}, seconds,
            float(self._length("attention", here)[0]), int(self._graph.values[place]),
            float(self._measured.values[place]),
        )  # fmt: skip

    def in_sight(self, begin: float, end: float) -> tuple[int, int]:
        """The places `[first, last)` of the steps that overlap these seconds."""
        first = int(np.searchsorted(self._end.values, begin, "right"))
        return first, max(first, int(np.searchsorted(self._begin.values, end, "left")))

    # -- tokens ---------------------------------------------------------------------------------------------------

    def tokens(self, edges: Array, axis: Axis) -> TokenColumns:
        """What lies between each two of `edges` [columns + 1], values of the axis."""
        columns = len(edges) - 1
        if axis is Axis.TIME:
            first, last = self.in_sight(float(edges[0]), float(edges[-1]))
            begins, ends = self._begin.values[first:last], self._end.values[first:last]
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
        each = [column.values[first:last] for column in self._tokens]
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
        begins, ends = self._begin.values, self._end.values
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
        return bool(self._measured.count) and self._measured.values[-1] > 0

    def device(self, times: Array) -> Array:
        """Seconds before each of these moments in which a device computed: by its own clock, up to where the host had
        the tokens. Without such a clock it may have computed from a forward pass's launch on, and no longer."""
        begins, spent = self._device.values, self._spent["device"].values
        return _spent(begins, begins, spent, spent, times)

    def _spent_until(self, name: str, times: Array) -> Array:
        spent, whole = self._spent[name].values, self._spent["forward" if name == "attention" else name].values
        if name in TAIL:
            starts, before = self._tail.values, TAIL[: TAIL.index(name)]
        else:
            at = LAUNCH.index("forward" if name == "attention" else name)
            starts, before = self._started.values, LAUNCH[:at]
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
        spent = self._spent[phase].values
        return np.asarray(spent[place + 1] - spent[place])

    def segments(self, first: int, last: int) -> Segments:
        """Every phase of the steps `[first, last)` that took any time."""
        places = np.arange(first, last)
        phases, begins, ends = [], [], []
        for names, at in ((LAUNCH, self._started.values[first:last]), (TAIL, self._tail.values[first:last])):
            for name in names:
                end = at + self._length(name, places)
                phases.append(np.full(len(places), PHASES.index(name)))
                begins.append(at)
                ends.append(end)
                at = end
        columns = (np.concatenate(phases), np.tile(places, len(PHASES)), np.concatenate(begins), np.concatenate(ends))
        took = columns[3] > columns[2]
        return Segments(*(column[took] for column in columns))

    def idle_share(self, begin: float, end: float, on_device: bool) -> float | None:
        """The share of these seconds in which nothing was computed (on a device: at least this share), as far as steps
        go; None where there are none."""
        if not len(self):
            return None
        begin, end = max(begin, 0.0), min(end, float(self._ended.values[-1]))
        if end <= begin:
            return None
        times = np.array((begin, end))
        if on_device:
            busy = float(np.diff(self.device(times))[0])
        else:
            busy = float(sum(np.diff(self._spent_until(name, times))[0] for name in COMPUTING))
        return min(1.0, max(0.0, 1.0 - busy / (end - begin)))


def _totals() -> Column:
    column = Column(np.float64)
    column.append(0.0)
    return column


def _until(lengths: Array, tokens: Array, place: Array, into: Array) -> Array:
    """The integral of a value that is constant in each step, up to `into` the step of each place."""
    before = np.concatenate(([0.0], np.cumsum(lengths * tokens)))
    return np.asarray(before[place] + into * np.broadcast_to(tokens, lengths.shape)[place])


def _spent(starts: Array, begins: Array, spent: Array, whole: Array, times: Array) -> Array:
    """The running total at each moment, of what is spent evenly from `begins` on."""
    if not len(starts):
        return np.zeros(len(times))
    place = np.maximum(np.searchsorted(starts, times, "right") - 1, 0)
    return np.asarray(spent[place] + np.clip(times - begins[place], 0.0, whole[place + 1] - whole[place]))
