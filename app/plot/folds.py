"""Idle time on an axis of seconds: where no request waits or runs for long, the axis is folded. No Qt in here."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from app.plot.scales import time_ticks
from engine.trace import Array, Presence

LEAST = 1.0  # seconds: shorter idle time is drawn as long as it was
WIDTH = 0.05  # seconds of the axis that a fold takes


@dataclass(frozen=True, slots=True)
class Folds:
    """Spans of seconds, in order, each of which takes `WIDTH` of the axis, however long it was."""

    begins: Array = field(default_factory=lambda: np.zeros(0))
    ends: Array = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def places(self) -> Array:
        """Where each begins on the axis."""
        return np.asarray(self.begins - self._cut[:-1])

    @property
    def _cut(self) -> Array:
        """Seconds that the axis lacks, before each fold and after the last."""
        return np.concatenate(([0.0], np.cumsum(self.ends - self.begins - WIDTH)))

    def values(self, times: ArrayLike) -> Array:
        """Where moments are on the axis."""
        times = np.asarray(times, np.float64)
        if not len(self):
            return times
        which = np.searchsorted(self.begins, times, "right") - 1
        fold = np.maximum(which, 0)
        begins, cut = self.begins[fold], self._cut[:-1][fold]
        length = self.ends[fold] - begins
        into = np.minimum(times - begins, length)
        beyond = np.maximum(times - begins - length, 0.0)
        return np.where(which < 0, times, begins - cut + into / length * WIDTH + beyond)

    def times(self, values: ArrayLike) -> Array:
        """The moments at which the axis has these values."""
        values = np.asarray(values, np.float64)
        if not len(self):
            return values
        places = self.places
        which = np.searchsorted(places, values, "right") - 1
        fold = np.maximum(which, 0)
        into = values - places[fold]
        beyond = np.maximum(into - WIDTH, 0.0)
        length = self.ends[fold] - self.begins[fold]
        inside = np.minimum(into, WIDTH) / WIDTH * length
        return np.where(which < 0, values, self.begins[fold] + inside + beyond)

    def in_sight(self, begin: float, end: float) -> Array:
        """Which folds overlap this part of the axis."""
        places = self.places
        return np.flatnonzero((places + WIDTH > begin) & (places < end))

    def ticks(self, begin: float, end: float, count: float) -> list[tuple[float, str]]:
        """At most about `count` round seconds in this part of the axis: where each is on the axis, and its words."""
        parts = self.parts(begin, end)
        found = [(low, high, time_ticks(low, low + (end - begin), count)) for low, high in parts]
        return [(float(self.values(at)), words) for _, high, ticks in found for at, words in ticks if at <= high]

    def parts(self, begin: float, end: float) -> list[tuple[float, float]]:
        """The seconds of this part of the axis between the folds."""
        seen = self.in_sight(begin, end)
        first, last = (float(time) for time in self.times((begin, end)))
        edges = [first, *np.stack((self.begins[seen], self.ends[seen]), axis=1).ravel().tolist(), last]
        return [(low, high) for low, high in zip(edges[::2], edges[1::2]) if high > low]


def idle_folds(presence: Presence, origin: float) -> Folds:
    """Where a run idles long enough, in seconds since `origin`."""
    begins, ends = presence.gaps(LEAST)
    return Folds(begins - origin, ends - origin)


NONE = Folds()
