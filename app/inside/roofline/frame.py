"""Where the roofline's plot is, and which decades it spans."""

import math
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QRectF

from app.inside.roofline.points import FINENESS, X_DECADES, Y_DECADES, Part, Point, RooflinePoints
from app.language import tr
from engine.trace import Array

SIDE = tr("operations a second")
CROWDED = 64  # pixels of the design: a lower area has room for one word at its roof
FAR = 1.0  # decades above all else within which the limit of an exchange is drawn to its scale
TAIL = 0.003  # of the steps, the slowest, may lie below the axis: one that stalled does not squeeze all others


@dataclass(frozen=True, slots=True)
class Frame:
    """Where the plot is, and the decades it spans."""

    area: QRectF
    left: float
    right: float
    low: float
    high: float

    def x(self, value: Array | float) -> Array:
        """Pixels of operations a byte."""
        share = (np.log10(value) - self.left) / (self.right - self.left)
        return np.clip(self.area.left() + share * self.area.width(), self.area.left(), self.area.right())

    def y(self, value: Array | float) -> Array:
        """Pixels of operations a second."""
        share = (np.log10(value) - self.low) / (self.high - self.low)
        return np.clip(self.area.bottom() - share * self.area.height(), self.area.top(), self.area.bottom())


def frame_of(
    points: RooflinePoints, point: Point | None, area: QRectF, beside: tuple[float, float] | None = None
) -> Frame:
    """The decades that show the points, the one at the cursor, and the ridge; also of a roof `beside` it, of so many
    bytes and operations a second."""
    spans = []
    for axis, (low, _), tail in ((1, X_DECADES, 0.0), (0, Y_DECADES, TAIL)):
        mass = points.density.sum(axis)
        first = np.searchsorted(np.cumsum(mass), tail * mass.sum(), "right")
        spans.append([low + first / FINENESS, low + (np.flatnonzero(mass)[-1] + 1) / FINENESS])
    across, up = spans
    shown: list[Point | Part] = [] if point is None else [point, *point.parts]
    for each in shown:
        across = [min(across[0], math.log10(each.intensity)), max(across[1], math.log10(each.intensity))]
        up = [min(up[0], math.log10(each.achieved)), max(up[1], math.log10(each.achieved))]
    roof = points.roof
    if roof is not None:
        size = point.bytes if point is not None else roof.working_sets[-1]
        ridge = math.log10(roof.operations / roof.bandwidth_at(size))
        across = [min(across[0], ridge - 0.3), max(across[1], ridge + 0.5)]
        up[1] = max(up[1], math.log10(roof.operations))
    if beside is not None:
        bandwidth, rate = beside
        ridge = math.log10(rate / bandwidth)
        across = [min(across[0], ridge - 0.3), max(across[1], ridge + 0.5)]
        up[1] = max(up[1], math.log10(rate))
    if point is not None and point.ceiling:
        ceiling = math.log10(point.ceiling)
        up = [min(up[0], ceiling), max(up[1], ceiling if ceiling < up[1] + FAR else up[1])]
    left, right = (math.floor(across[0] * 4 - 0.4) / 4, math.ceil(across[1] * 4 + 0.4) / 4)
    return Frame(area, left, right, math.floor(up[0] * 4 - 0.6) / 4, math.ceil(up[1] * 4 + 1.2) / 4)
