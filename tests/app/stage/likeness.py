"""Whether a picture shows what its baseline does, to a person: means of blocks are compared, so that a digit of a rate
and the anti-aliasing of a line do not count, and a sentence, a panel or a colour does."""

from pathlib import Path

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage, QPainter

BLOCK = 4  # pixels of a baseline, which has half the size of a window
CHANGED = 12.0  # of 255, of a block's mean in any channel
MOST = 60  # changed blocks of pictures that are alike; 14,400 make a window of 1280 × 720


def blocks(image: QImage) -> np.ndarray:
    """Mean colours, `[height / BLOCK, width / BLOCK, 3]`."""
    image = image.convertToFormat(QImage.Format.Format_RGB888)
    rows = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.bytesPerLine())
    pixels = rows[:, : 3 * image.width()].reshape(image.height() // BLOCK, BLOCK, image.width() // BLOCK, BLOCK, 3)
    return pixels.mean(axis=(1, 3))


def differences(shown: QImage, baseline: QImage) -> np.ndarray:
    """Which blocks are others: `[height / BLOCK, width / BLOCK]`."""
    small = shown.scaled(baseline.size(), mode=Qt.TransformationMode.SmoothTransformation)
    return np.abs(blocks(small) - blocks(baseline)).max(axis=2) > CHANGED


def side_by_side(shown: QImage, baseline: QImage, file: Path) -> None:
    """A picture for whoever looks into a failure: the baseline, what is shown now, and where they differ, lit."""
    lit = differences(shown, baseline).astype(np.uint8) * 255
    mask = QImage(lit.tobytes(), lit.shape[1], lit.shape[0], lit.shape[1], QImage.Format.Format_Grayscale8)
    width, height = shown.width(), shown.height()
    sheet = QImage(width, 3 * height, QImage.Format.Format_RGB888)
    painter = QPainter(sheet)
    for place, part in enumerate((baseline, shown, mask)):
        painter.drawImage(0, place * height, part.scaled(width, height))
    painter.end()
    sheet.save(str(file))
