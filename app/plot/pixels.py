"""Pictures made of numbers: colours as parts from 0 to 1, pixels as 0xffRRGGBB. No Qt in here."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from engine.trace import Array

DASH = (5, 3)  # pixels with and without ink, before the scale


def packed(color: Array) -> Array:
    """Pixels of colours [..., 3]."""
    parts = np.clip(color * 255 + 0.5, 0, 255).astype(np.uint32)
    return np.asarray(0xFF000000 | parts[..., 0] << 16 | parts[..., 1] << 8 | parts[..., 2], np.uint32)


def unpacked(pixels: Array) -> Array:
    """Colours [..., 3] of pixels."""
    return np.stack([(pixels >> shift) & 0xFF for shift in (16, 8, 0)], axis=-1).astype(np.float32) / 255


def slanted(period: int, stroke: float, slope: float = math.sqrt(0.5)) -> Array:
    """How much of each pixel along a period of a hatch at 45 degrees is in its line, 0 to 1; upright with slope 1."""
    distance = np.minimum(np.arange(period), period - np.arange(period)) * slope
    return np.asarray(np.clip(stroke / 2 + 0.5 - distance, 0, 1))


def stacked(heights: Array, height: int, least: int = 0) -> Array:
    """Which layer each pixel shows, [height, columns], of layers `heights` [layers, columns] pixels high from the foot
    up, none of them but an empty one lower than `least`; the number of layers where none reaches."""
    tops = np.rint(np.cumsum(heights, axis=0)).astype(np.int32)
    if least:
        below = np.vstack((np.zeros_like(tops[:1]), tops[:-1]))
        tops = np.maximum.accumulate(np.where(heights > 0, np.maximum(tops, below + least), tops))
    rows = np.arange(height, dtype=np.int32)[::-1, None]
    which = np.zeros((height, heights.shape[1]), np.uint8)
    for top in tops:
        which += top[None, :] <= rows
    return which


def textured(heights: Array, textures: Sequence[Array], outlines: Mapping[int, int], ground: int) -> Array:
    """Bands from the foot up: `heights` [kinds, columns] in pixels, filled from `textures` [kinds][height, width], of
    which columns are the first. Border pixels of the kinds in `outlines` have that colour."""
    height, columns = textures[0].shape[0], heights.shape[1]
    picture = np.full((height, columns), ground, np.uint32)
    which = stacked(heights, height, least=1)
    for kind, texture in enumerate(textures):
        inside = which == kind
        np.copyto(picture, texture[:, :columns], where=inside)
        if kind in outlines and inside.any():
            deep = inside.copy()
            deep[1:] &= inside[:-1]
            deep[:-1] &= inside[1:]
            deep[:, 1:] &= inside[:, :-1]
            deep[:, :-1] &= inside[:, 1:]
            picture[inside & ~deep] = outlines[kind]
    return picture


def draw_dashes(picture: Array, heights: Array, ink: int, thick: int, scale: float) -> None:
    """A dashed line through `heights` [columns], pixels above the foot; its leaps are solid."""
    height, columns = picture.shape
    rows = np.arange(height, 0, -1)[:, None]
    level = np.rint(np.clip(heights, 0, 2 * height)).astype(np.int64)
    before = np.concatenate((np.repeat(level[:1], thick), level[:-thick]))
    low, high = np.minimum(level, before), np.maximum(level, before) + thick
    on, off = (round(length * scale) for length in DASH)
    inked = (np.arange(columns) % (on + off) < on) | (high - low > thick + 3 * scale)
    picture[(rows > low) & (rows <= high) & inked] = ink
