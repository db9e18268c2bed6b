"""Between Qt's colours and pictures and those that are numbers."""

import numpy as np
from PySide6.QtGui import QColor, QImage

from engine.trace import Array


class PixelImage(QImage):
    """Shows pixels 0xffRRGGBB [height, columns], of which `ratio` make one of the design; it keeps them."""

    def __init__(self, pixels: Array, ratio: float = 1.0) -> None:
        height, width = pixels.shape
        super().__init__(pixels.data, width, height, 4 * width, QImage.Format.Format_RGB32)
        self._pixels = pixels  # whose memory this is
        self.setDevicePixelRatio(ratio)


def parts_of(color: QColor) -> Array:
    """A colour's parts [3], 0 to 1."""
    return np.array((color.redF(), color.greenF(), color.blueF()), np.float32)
