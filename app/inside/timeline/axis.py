"""What runs from left to right in a timeline: seconds, or steps of one width each. No Qt in here.

On the axis of steps the step of place p takes `[p, p + 1)`; idle time between two steps lies at their border.
"""

from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from engine.trace import Array


class Axis(StrEnum):
    TIME = "time"
    STEPS = "steps"

    @property
    def shortest(self) -> float:
        """What is in sight at the deepest zoom."""
        return 1e-4 if self is Axis.TIME else 0.5


def places_of(begins: Array, ends: Array, time: ArrayLike) -> Array:
    """Where moments lie on the axis of steps, which begin and end then: [steps] each, in order."""
    times = np.asarray(time, np.float64)
    if not len(begins):
        return np.zeros_like(times)
    place = np.searchsorted(begins, times, "right") - 1
    return np.where(place < 0, 0.0, place + _share(begins, ends, np.maximum(place, 0), times))


def run_places(begins: Array, ends: Array, place: Array, time: Array) -> Array:
    """The same where the step of each moment is known, which may be its border."""
    return place + _share(begins, ends, place, time)


def times_of(begins: Array, ends: Array, value: ArrayLike) -> Array:
    """When the axis of steps is at a value; the border of two steps is where the later one begins."""
    values = np.asarray(value, np.float64)
    if not len(begins):
        return np.zeros_like(values)
    values = np.clip(values, 0.0, len(begins))
    place = np.minimum(values.astype(np.int64), len(begins) - 1)
    return np.asarray(begins[place] + (values - place) * (ends[place] - begins[place]))


def _share(begins: Array, ends: Array, place: Array, time: Array) -> Array:
    """How much of a step was over at a moment."""
    begin, end = begins[place], ends[place]
    length = np.maximum(end - begin, 1e-12)
    return np.asarray(np.clip((time - begin) / length, 0.0, 1.0))
