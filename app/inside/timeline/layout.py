"""Where the parts of the timeline panel lie, from the queue at the top to the words at the foot. No Qt in here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

GAP = 6


class Part(Enum):
    """What is drawn one below the other."""

    QUEUE = auto()
    SLOTS = auto()
    TOKENS = auto()
    HOST = auto()
    DEVICE = auto()
    RANK = auto()
    WORDS = auto()


@dataclass(frozen=True, slots=True)
class Band:
    """A part from one side to the other: pixels from the top, and how many it is high; 0 where it has no room."""

    top: int
    height: int

    @property
    def bottom(self) -> int:
        return self.top + self.height

    def holds(self, y: float) -> bool:
        return self.top <= y < self.bottom


@dataclass(frozen=True, slots=True)
class Parts:
    """Heights that do not depend on the slots."""

    queue: int
    tokens: int
    lane: int
    lanes: int
    gap: int
    below: int  # the slots' end and the first track
    ticks: int
    legend: int
    words: int

    @property
    def foot(self) -> int:
        """All below the slots."""
        tracks = sum(height + self.gap for height in (self.tokens, self.lanes * (self.lane + 2)) if height)
        return self.below + tracks + self.ticks + self.legend + self.words

    def bands(self, slots_end: int, height: int, most_tokens: int) -> Bands:
        """The places of all parts below slots that end there; the tokens take what the slots leave."""
        spare = max(0, height - slots_end - self.foot)
        tokens = min(self.tokens + spare, max(self.tokens, most_tokens)) if self.tokens else 0
        y = slots_end + self.below + (self.gap if tokens else 0)
        token_band = Band(y, tokens)
        y += tokens + (self.gap if self.lane else 0)
        pitch = self.lane + 2
        lanes = tuple(Band(y + i * pitch, self.lane) for i in range(self.lanes if self.lane else 0))
        y += len(lanes) * pitch
        words = height - self.words
        legend, foot = Band(words - self.legend, self.legend), Band(words, self.words)
        return Bands(Band(0, max(0, self.queue - 2)), token_band, lanes, Band(y, self.ticks), legend, foot)


@dataclass(frozen=True, slots=True)
class Bands:
    queue: Band
    tokens: Band
    lanes: tuple[Band, ...]
    ticks: Band
    legend: Band
    words: Band
    device: bool = False  # whether the lane below the host's is a device's

    def rank_at(self, y: float) -> int:
        """Whose lane has this height; -1 for nobody's."""
        first = 1 + self.device
        return next((i for i, band in enumerate(self.lanes[first:]) if band.holds(y)), -1)

    def part_at(self, y: float) -> Part | None:
        """Which part beside the slots has this height; None between them."""
        kinds = (Part.HOST, *[Part.DEVICE] * self.device, *[Part.RANK] * len(self.lanes))
        lanes = zip(kinds, self.lanes)
        parts = ((Part.QUEUE, self.queue), (Part.TOKENS, self.tokens), *lanes, (Part.WORDS, self.words))
        return next((part for part, band in parts if band.holds(y)), None)


@lru_cache(maxsize=64)
def parts_for(
    height: float, line: int, lanes: int, scale: float, legend: int, told: int = 0, stage: bool = False
) -> Parts:
    """What a panel of this height has room for, in pixels at this zoom; `line` is the height of a line of words, and
    `told` how many the foot has in the place of the legend, which has `legend` lines; 0: the legend, and one below it.
    On a `stage`, no words at the foot.

    The lower it is, the more goes: the legend first, then the queue, the tokens, the lanes.
    """

    def px(length: float) -> int:
        return max(1, round(length * scale))

    tall = height / scale
    return Parts(
        queue=px(16) if tall >= 150 else 0,
        tokens=px(min(max(0.16 * tall, 26), 56)) if tall >= 130 else 0,
        lane=px(14 if tall < 300 else 18) if tall >= 110 and lanes else 0,
        lanes=lanes,
        gap=px(GAP),
        below=px(4) if tall >= 130 else 0,
        ticks=px(5) + line,
        legend=px(5) + legend * line if legend and not told and tall >= 225 else 0,
        words=px(3) + max(0 if stage else 1, told) * line,
    )
