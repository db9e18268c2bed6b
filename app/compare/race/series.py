"""What the race charts draw of a lane: its tokens, waits and gaps in order of time, up to any cursor. No Qt in here.

A step costs O(its rows). Cutting at a cursor costs O(log n) and a picture O(its pixels), so a finished lane replays
beside a live one.
"""

import math
from collections.abc import Iterable

import numpy as np

from engine.trace import Array, Column, Ended, Record, Step, Submitted

DOTS = 600
KEPT_EXTREMES = 8


class LaneSeries:
    """One lane. Times are seconds since its origin; each pair of columns is sorted by its times."""

    def __init__(self) -> None:
        self.now = 0.0
        self.step_time, self.tokens = Column(np.float64), Column(np.int64)  # tokens: output tokens so far
        self.running, self.waiting = Column(np.int32), Column(np.int32)
        self.ttft_time, self.ttft = Column(np.float64), Column(np.float64)
        self.itl_time, self.itl = Column(np.float64), Column(np.float64)
        self._total = self._open = 0
        self._submitted = np.full(256, np.nan)  # by request
        self._sample = np.full(256, -1)  # by request: its first sample
        self._started = np.zeros(256, bool)
        self._emitted = np.full(256, np.nan)  # by sample: when it last gave a token
        self._samples = 0

    def feed(self, records: Iterable[Record], origin: float = 0.0) -> None:
        """Takes the next records of the lane's trace. `origin`: the trace's time at which the lane began."""
        for record in records:
            match record:
                case Step():
                    self._step(record, record.ended - origin)
                case Submitted():
                    self._open += record.params.branches
                    self._know(record.request, record.params.branches)
                    self._submitted[record.request] = record.time - origin
                    self.now = max(self.now, record.time - origin)
                case Ended():
                    self._open -= 1
                    self.now = max(self.now, record.time - origin)
                case _:
                    pass

    @property
    def over(self) -> bool:
        """Whether all that came in has ended."""
        return self.step_time.count > 0 and self._open <= 0

    def count(self, times: Column, until: float | None) -> int:
        """How many entries of a column of times had come by then; all without a cursor."""
        return times.count if until is None else int(np.searchsorted(times.values, until, "right"))

    def _know(self, request: int, samples: int) -> None:
        self._submitted = _reaching(self._submitted, request, np.nan)
        self._sample = _reaching(self._sample, request, -1)
        self._started = _reaching(self._started, request, False)
        self._sample[request] = self._samples
        self._samples += samples
        self._emitted = _reaching(self._emitted, self._samples - 1, np.nan)

    def _step(self, step: Step, time: float) -> None:
        self.now = max(self.now, time)
        self._total += len(step.token)
        self.step_time.append(time)
        self.tokens.append(self._total)
        self.running.append(step.running)
        self.waiting.append(step.waiting)
        if not len(step.token):
            return
        request, branch = step.request[step.token_row], step.branch[step.token_row]
        for unknown in np.unique(request[request >= len(self._sample)]):
            self._know(int(unknown), 1)
        for unknown in np.unique(request[self._sample[request] < 0]):
            self._know(int(unknown), 1)

        first = np.unique(request[~self._started[request]])
        self._started[first] = True
        first = first[~np.isnan(self._submitted[first])]
        self.ttft_time.extend(time, len(first))
        self.ttft.extend(time - self._submitted[first], len(first))

        # tokens that one step gave to a sample are one emission
        sample = np.unique(np.minimum(self._sample[request] + branch, len(self._emitted) - 1))
        gap = time - self._emitted[sample]
        gap = gap[~np.isnan(gap) & (gap > 0)]
        self._emitted[sample] = time
        self.itl_time.extend(time, len(gap))
        self.itl.extend(gap, len(gap))


def _reaching(values: Array, place: int, fill: float) -> Array:
    """The values with room for a place; so much more that a longer one costs little each time."""
    more = max(place + 1, 2 * len(values)) - len(values) if place >= len(values) else 0
    return np.append(values, np.full(more, fill, values.dtype)) if more else values


def thinned(values: Array, most: int = DOTS) -> Array:
    """The places of at most `most` values: every 2^k-th, and the smallest and largest few.

    Places stay while values are appended, until k grows.
    """
    count = len(values)
    if count <= most:
        return np.arange(count)
    extremes = min(KEPT_EXTREMES, most // 4)
    every = 1
    while -(-count // every) > most - 2 * extremes:
        every *= 2
    lowest = np.argpartition(values, extremes)[:extremes]
    highest = np.argpartition(values, count - extremes - 1)[-extremes:]
    return np.unique(np.concatenate((np.arange(0, count, every), lowest, highest)))


def jitter(places: Array) -> Array:
    """Where in its strip each value lies, 0 to 1: without a pattern, and always the same for a place."""
    mixed = (np.asarray(places, np.uint32) + np.uint32(1)) * np.uint32(0x9E3779B1)
    mixed = (mixed ^ (mixed >> np.uint32(15))) * np.uint32(0x85EBCA77)
    mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE3D)
    return np.asarray((mixed ^ (mixed >> np.uint32(16))) / 2.0**32)


def ratio_axis(lowest: float, highest: float) -> tuple[float, float]:
    """The ends of a logarithmic axis: 1, 2 or 5 times a power of ten, with all values in between."""

    def power(value: float) -> float:
        return 10.0 ** math.floor(math.log10(value) + 1e-9)

    lowest, highest = max(lowest, 1e-6), max(highest, 1e-6)
    begin = max(m * power(lowest) for m in (1, 2, 5) if m * power(lowest) <= lowest * (1 + 1e-9))
    end = min(m * power(highest) for m in (1, 2, 5, 10) if m * power(highest) >= highest * (1 - 1e-9))
    return (begin, end) if end > begin else (round_ratio(begin / 2), round_ratio(end * 2))


def round_ratio(value: float) -> float:
    """The nearest of 1, 2 and 5 times the powers of ten, by ratio."""
    scale = 10.0 ** math.floor(math.log10(value))
    return min((m * scale for m in (1, 2, 5, 10)), key=lambda v: abs(math.log(v / value)))


def stairs(times: Array, values: Array, columns: int, end: float) -> tuple[Array, Array]:
    """The line of a value that holds until the next one, from 0 at time 0 to `end`, at most four points a column.

    Where more than a few values fall in a column, its smallest and largest stand for them.
    """
    if not len(times) or end <= 0:
        return np.zeros(0), np.zeros(0)
    if len(times) > 2 * columns:
        place = np.minimum((times * (columns / end)).astype(np.int64), columns - 1)
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        last = values[np.append(starts[1:], len(values)) - 1]
        at = times[starts]
        x = np.repeat(at, 4)
        before = np.concatenate((values[:1] * 0, last[:-1]))
        y = np.column_stack((before, low, high, last)).ravel()
    else:
        x = np.repeat(times, 2)
        y = np.column_stack((np.concatenate((values[:1] * 0, values[:-1])), values)).ravel()
    x = np.concatenate(([0.0], x, [end]))
    y = np.concatenate(([0.0], y.astype(float), [float(values[-1])]))
    bends = np.ones(len(y), bool)
    bends[1:-1] = (y[1:-1] != y[:-2]) | (y[1:-1] != y[2:])
    return x[bends], y[bends]
