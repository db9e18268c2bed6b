"""Each step as a point under the machine's roof: its bytes and operations, its rate, which limit binds it. No Qt here.

The roof is that of Williams, Waterman and Patterson 2009, "Roofline: An Insightful Visual Performance Model": what can
be reached is min(rate of matrix products, operations per byte x bandwidth). The bandwidth is the one measured at the
step's own working set, its bytes. A model that is split over ranks has a third limit: what they exchange in the step,
at the rate that was measured between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from app.inside.columns import Columns, Numbers
from engine.trace import Array, Header, Kind, Record, Roof, Step, WorkCounter

PREFILL, DECODE, MIXED = 0, 1, 2
KINDS = ("prefill", "decode", "mixed")
FAR = 0.2  # of the roof: a step below it is held up by something else than the two limits
OUTSIDE = 0.5  # of the step's time
FINENESS = 40  # cells a decade of the whole run's density
X_DECADES, Y_DECADES = (-2, 5), (5, 17)


class Bound(StrEnum):
    """What keeps a step from being faster."""

    MEMORY = "memory"
    COMPUTE = "compute"
    COMMUNICATION = "communication"
    OUTSIDE = "outside the model"
    OVERHEAD = "overhead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Part:
    """What the "products" or "attention" of a step did; `limit` is the roof's, operations a second."""

    name: str
    bytes: float
    operations: float
    seconds: float
    limit: float

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / self.bytes

    @property
    def achieved(self) -> float:
        """Operations a second."""
        return self.operations / self.seconds

    @property
    def share(self) -> float:
        """Of the roof."""
        return self.achieved / self.limit


@dataclass(frozen=True, slots=True)
class Point:
    """One step. `seconds` are those its rate is reckoned with; `bandwidth` and `rate` (operations a second) are the
    roof's, 0 where none was measured. `sent`: bytes that a rank of a split model sends, in messages of `message` bytes,
    which the ranks exchange at `exchange` bytes a second; 0 where nothing is sent or nobody measured. `waiting`: the
    share of their time in which they wait for each other. Of the seconds, those of matrix `products` and of
    `attention`, 0 where nobody told; of the bytes and operations, attention's."""

    step: int
    started: float
    ended: float
    kind: str
    tokens: int
    rows: int
    bytes: float
    operations: float
    seconds: float
    bandwidth: float
    rate: float
    sent: float = 0.0
    message: float = 0.0
    exchange: float = 0.0
    waiting: float = 0.0
    products: float = 0.0
    attention: float = 0.0
    attention_bytes: float = 0.0
    attention_operations: float = 0.0

    @property
    def parts(self) -> list[Part]:
        """Products and attention, each by itself, where both were timed and there is a roof."""
        if not (self.limit and self.products and self.attention and self.attention_bytes):
            return []
        rest = self.bytes - self.attention_bytes, self.operations - self.attention_operations, self.products
        found = {"products": rest, "attention": (self.attention_bytes, self.attention_operations, self.attention)}
        return [
            Part(name, size, operations, seconds, min(self.rate, operations / size * self.bandwidth))
            for name, (size, operations, seconds) in found.items()
        ]

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / self.bytes

    @property
    def achieved(self) -> float:
        """Operations a second of `seconds`."""
        return self.operations / self.seconds

    @property
    def ceiling(self) -> float:
        """Operations a second that the ranks' exchange allows, were all else done meanwhile; 0: no such limit."""
        return self.operations * self.exchange / self.sent if self.sent else 0.0

    @property
    def limit(self) -> float:
        """Operations a second that the roof allows; 0 where none was measured."""
        roof = min(self.rate, self.intensity * self.bandwidth)
        return min(roof, self.ceiling) if self.ceiling else roof

    @property
    def share(self) -> float:
        """Of the roof; 0 where none was measured."""
        return self.achieved / self.limit if self.limit else 0.0

    @property
    def outside(self) -> float:
        """The share of the step's time that is not in `seconds`."""
        return max(0.0, 1 - self.seconds / (self.ended - self.started)) if self.ended > self.started else 0.0

    @property
    def bound(self) -> Bound:
        if not self.limit:
            return Bound.UNKNOWN
        if self.outside > OUTSIDE:
            return Bound.OUTSIDE
        if self.achieved < FAR * self.limit:
            return Bound.OVERHEAD
        if self.limit == self.ceiling:
            return Bound.COMMUNICATION
        return Bound.COMPUTE if self.limit == self.rate else Bound.MEMORY


def _waiting(step: Step) -> float:
    """The share of their time that ranks of a split model waited for each other."""
    if not len(step.rank_waiting):
        return 0.0
    spent = float(step.rank_computing.sum() + step.rank_communicating.sum() + step.rank_waiting.sum())
    return float(step.rank_waiting.sum()) / max(spent, 1e-12)


class RooflinePoints(Columns):
    """The points of one trace. Steps without rows, or without a time, have none.

    The seconds of a step are those of `forward` on a CPU. A GPU computes after `forward` has launched it: there they
    are the time from its launch, or from the end of the step before, to its end.
    """

    step, started, ended = Numbers(np.int64), Numbers(np.float64), Numbers(np.float64)
    kind, tokens, rows = Numbers(np.uint8), Numbers(np.int32), Numbers(np.int32)
    bytes, operations, seconds = Numbers(np.float64), Numbers(np.float64), Numbers(np.float64)
    sent, waiting = Numbers(np.float64), Numbers(np.float32)
    products, attention = Numbers(np.float32), Numbers(np.float32)
    attention_bytes, attention_operations = Numbers(np.float64), Numbers(np.float64)

    def __init__(self) -> None:
        super().__init__()
        self.header: Header | None = None
        self.density = np.zeros([FINENESS * (b - a) for a, b in (X_DECADES, Y_DECADES)], np.int32)
        self._counter: WorkCounter | None = None
        self._last_end = 0.0

    def __frozen__(self) -> dict[str, Any]:
        """Without what counts the work of more steps."""
        return super().__frozen__() | {"_counter": None}

    @property
    def roof(self) -> Roof | None:
        return self.header.roof if self.header is not None else None

    @property
    def estimated(self) -> bool:
        """Whether the card does not say which weights multiply tokens, so that they are guessed."""
        return self.header is not None and self.header.model.body_parameters == 0

    def take(self, records: Sequence[Record]) -> None:
        """The next records, in order. O(the steps' rows)."""
        for record in records:
            if isinstance(record, Header):
                self.header, self._counter = record, WorkCounter(record)
        steps = [record for record in records if isinstance(record, Step)]
        if self._counter is None or self.header is None or not steps:
            return
        work = self._counter.count(steps)
        on_gpu = self.header.model.device.startswith("cuda")
        first = len(self)
        columns = work.bytes, work.operations, work.tokens, work.attention_bytes, work.attention_operations
        for step, (size, operations, tokens, *of_attention) in zip(steps, zip(*(c.tolist() for c in columns))):
            if on_gpu:  # by its own clock, or no longer than the host waited
                seconds = step.device or step.ended - max(step.started, self._last_end)
            else:
                seconds = step.seconds.get("forward", 0.0)
            self._last_end = step.ended
            if not step.rows or seconds <= 0 or size <= 0 or operations <= 0:
                continue
            own = step.own
            prefills, rows = int(np.count_nonzero(own.kind == Kind.PREFILL)), own.rows
            kind = PREFILL if prefills == rows else MIXED if prefills else DECODE
            split = self.header is not None and self.header.split > 1
            sent = float(step.rank_bytes.max(initial=0)) if split else 0.0
            counted = kind, tokens, rows, size, operations, seconds
            parts = *self._parts(step), *of_attention
            self.append(step.step, step.started, step.ended, *counted, sent, _waiting(step) if split else 0.0, *parts)
        x, y = self.places(first, len(self))
        cells = [
            np.clip(((np.log10(v) - low) * FINENESS).astype(np.int64), 0, FINENESS * (high - low) - 1)
            for v, (low, high) in ((x, X_DECADES), (y, Y_DECADES))
        ]
        np.add.at(self.density, tuple(cells), 1)

    def _parts(self, step: Step) -> tuple[float, float]:
        """Seconds of matrix products and of attention; 0 where nobody told, and of a rank's share."""
        kernels = self.header.kernels if self.header is not None and self.header.split == 1 else None
        if kernels is None or not len(step.kernel):
            return 0.0, 0.0
        return float(step.kernel[np.array(kernels.weights) > 0].sum()), step.attention

    def places(self, first: int, last: int) -> tuple[Array, Array]:
        """Operations a byte, and operations a second, of the points in [first, last)."""
        operations = self.operations[first:last]
        return operations / self.bytes[first:last], operations / self.seconds[first:last]

    def seconds_until(self, place: int) -> float:
        """Of the steps up to this one."""
        return float(self.seconds[: place + 1].sum())

    def least_until(self, place: int, bandwidth: float, rate: float) -> float:
        """Seconds that the steps up to this one take at the least where so many bytes and operations a second can be
        had."""
        size, operations = self.bytes[: place + 1], self.operations[: place + 1]
        return float(np.maximum(size / bandwidth, operations / rate).sum())

    def place_at(self, moment: float) -> int:
        """The last point whose step had ended then; -1 before the first."""
        return self.last_at("ended", moment)

    def point(self, place: int) -> Point:
        """Raises IndexError where there is none."""
        row, roof = self.numbers_at(place), self.roof
        bandwidth, rate = (0.0, 0.0) if roof is None else (roof.bandwidth_at(row["bytes"]), roof.operations)
        kind, message, exchange = KINDS[row.pop("kind")], 0.0, 0.0
        between = self.header.interconnect if self.header is not None else None
        if between is None:
            row["sent"] = 0.0
        elif row["sent"]:
            message = row["sent"] / self._messages
            exchange = between.rate_at(message)
        return Point(kind=kind, **row, bandwidth=bandwidth, rate=rate, message=message, exchange=exchange)

    @property
    def _messages(self) -> int:
        """Of a rank in a step: after attention and after the MLP of each layer, before both too where ranks share rows,
        and what it has of the logits."""
        if self.header is None:
            return 1
        return (4 if self.header.sequence_parallel else 2) * self.header.model.layers + 1
