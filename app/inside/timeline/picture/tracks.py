"""Pictures of the tracks below a timeline's slots, as 32-bit pixels 0xffRRGGBB. No Qt in here.

Each column of pixels is a stack of layers, from the foot up; hatches are bound to the axis, as those of the slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from app.inside.timeline.picture.shading import BETWEEN, DEPTHS, LINE, line_depths
from app.inside.timeline.steps import LAUNCH, TAIL, TOKENS, TokenColumns
from app.plot.pixels import packed, stacked
from app.plot.scales import nice_top
from engine.trace import Array

TOPS = (1, 1.5, 2, 3, 5, 7.5, 10)
NEAR_BUDGET = 2.5  # a budget further above the most in sight has its line at the rim, not at its height
LAYERS = (
    "attention",
    "forward",
    "draft",
    "sample",
    "prepare",
    "plan",
    "commit",
    "record",
    "wait",
)  # of the host's lane


class Hatch(Enum):
    NONE = 0
    UP = 1  # prefill
    DOWN = 2  # padding
    CROSSED = 3  # thrown away


@dataclass(frozen=True, slots=True)
class Layer:
    """How one layer is drawn: a colour [3] between 0 and 1, and a hatch in it."""

    color: Array
    hatch: Hatch = Hatch.NONE


@dataclass(frozen=True, slots=True)
class Grain:
    """Device pixels: the hatches' period and stroke, and where the axis' zero lies."""

    period: int
    stroke: float
    origin: int


@dataclass(frozen=True, slots=True)
class TokenScale:
    """`top` tokens reach to the upper rim; `budget` is where its line is, 0 for none, and `beyond` is set where it is
    further up than that."""

    top: float
    budget: float = 0.0
    beyond: bool = False


def token_scale(most: float, budget: int | None) -> TokenScale:
    """A scale for so many tokens in a step, and for their budget where there is one and it is near."""
    top = nice_top(most, TOPS, 1e-3)  # rests while one pans
    if budget is None:
        return TokenScale(top)
    if budget <= NEAR_BUDGET * max(top, 1.0):
        return TokenScale(max(1.06 * budget, top if most > budget else 0.0), budget)
    return TokenScale(top, budget, beyond=True)


def painted(which: Array, layers: Sequence[Layer], ground: Array, grain: Grain) -> Array:
    """The pixels of a stack."""
    colors = np.stack([*(layer.color for layer in layers), ground]).astype(np.float32)
    table = packed(colors)
    for i, layer in enumerate(layers):
        if layer.hatch is not Hatch.NONE:
            table[i] = packed(ground + BETWEEN * (colors[i] - ground))
    pixels = table[which]
    for i, layer in enumerate(layers):
        if layer.hatch is Hatch.NONE:
            continue
        y, x = np.nonzero(which == i)
        if not len(y):
            continue
        strength = np.linspace(BETWEEN, LINE, DEPTHS)[:, None]
        shades = packed(ground + strength * (colors[i] - ground)[None, :])
        pixels[y, x] = shades[_depth(layer.hatch, x + grain.origin, y, grain)]
    return np.ascontiguousarray(pixels)


def _depth(hatch: Hatch, x: Array, y: Array, grain: Grain) -> Array:
    """How deep in a line of the hatch each pixel is."""
    period = grain.period * (2 if hatch is Hatch.CROSSED else 1)
    depth = line_depths(period, grain.stroke)
    if hatch is Hatch.UP:
        return np.asarray(depth[(x + y) % period])
    if hatch is Hatch.DOWN:
        return np.asarray(depth[(x - y) % period])
    return np.maximum(depth[(x + y) % period], depth[(x - y) % period])


def token_picture(
    columns: TokenColumns, top: float, height: int, layers: Sequence[Layer], ground: Array, most: Array, grain: Grain
) -> Array:
    """Tokens a step [height, columns], `layers` by `TOKENS`; where a column's fullest step is well above its mean, a
    dot of the colour `most` tells how full."""
    heights = columns.mean * (height / top)
    useful = [TOKENS.index("decode"), TOKENS.index("prefill")]
    heights[useful] = np.where(heights[useful] > 0, np.maximum(heights[useful], 1.0), 0.0)
    pixels = painted(stacked(heights, height), layers, ground, grain)
    peaks = columns.most * (height / top)
    x = np.flatnonzero(columns.busy & (peaks > heights.sum(axis=0) + 2))
    y = np.clip(height - np.rint(peaks[x]).astype(np.int64), 0, height - 1)
    pixels[y, x] = packed(most)
    return pixels


def host_shares(phases: dict[str, Array], times: Array) -> Array:
    """The share of each layer in each column [layers, columns]: `phases` are the seconds before the moments `times`
    [columns, 2], where a column begins and ends."""
    lengths = np.maximum(np.diff(times)[:, 0], 1e-12)
    spent = {name: np.diff(phases[name])[:, 0] / lengths for name in (*LAUNCH, *TAIL, "attention")}
    spent["forward"] = np.maximum(spent["forward"] - spent["attention"], 0.0)
    return np.stack([spent[name] for name in LAYERS])


def crisp(shares: Array) -> Array:
    """The same where each column is wholly of the phase that has most of it, or idle; forward keeps its two parts."""
    forward = shares[:2].sum(axis=0)
    whole = np.concatenate((forward[None], shares[2:], 1 - shares.sum(axis=0)[None]))
    most = whole.argmax(axis=0)
    result = np.zeros_like(shares)
    result[:2] = np.where(most == 0, shares[:2] / np.maximum(forward, 1e-12), 0.0)
    result[2:] = most[None] == np.arange(1, len(shares) - 1)[:, None]
    return result


def lane_picture(shares: Array, height: int, layers: Sequence[Layer], ground: Array, grain: Grain) -> Array:
    """A lane [height, columns] filled as far as its layers' shares; what is empty was idle."""
    return painted(stacked(shares * height, height), layers, ground, grain)
