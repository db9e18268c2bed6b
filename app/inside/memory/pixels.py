"""The stacked kinds as pixels 0xffRRGGBB: faster than paths, for what is drawn anew every frame. No Qt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.plot import pixels
from engine.trace import Array

DASH = (5, 3)  # pixels with and without ink, before the scale


def stacked(heights: Array, textures: Sequence[Array], outlined: Sequence[Array | None], ground: int) -> Array:
    """Bands from the foot up: `heights` [kinds, columns] in pixels, filled from `textures` [kinds][height, width], of
    which columns are the first. Where `outlined` has a texture, a band's border pixels are from that."""
    height, columns = textures[0].shape[0], heights.shape[1]
    picture = np.full((height, columns), ground, np.uint32)
    which = pixels.stacked(heights, height, least=1)
    for kind, (texture, edge) in enumerate(zip(textures, outlined)):
        inside = which == kind
        np.copyto(picture, texture[:, :columns], where=inside)
        if edge is not None and inside.any():
            deep = inside.copy()
            deep[1:] &= inside[:-1]
            deep[:-1] &= inside[1:]
            deep[:, 1:] &= inside[:, :-1]
            deep[:, :-1] &= inside[:, 1:]
            np.copyto(picture, edge[:, :columns], where=inside & ~deep)
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
