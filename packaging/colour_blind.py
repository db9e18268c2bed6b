"""How a picture looks to colour-blind eyes: NAME-deuteranopia.png and two others beside it.

python packaging/colour_blind.py PICTURE.png ...
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from PySide6.QtGui import QImage

Array = np.ndarray[Any, Any]

# Of linear RGB, at severity 1: Machado, Oliveira, Fernandes, "A Physiologically-based Model for Simulation of Color
# Vision Deficiency", IEEE TVCG 15 (6), 2009, supplementary tables.
ROWS = {
    "protanopia": """
         0.152286  1.052583 -0.204868
         0.114503  0.786281  0.099216
        -0.003882 -0.048116  1.051998""",
    "deuteranopia": """
         0.367322  0.860646 -0.227968
         0.280085  0.672501  0.047413
        -0.011820  0.042940  0.968881""",
    "tritanopia": """
         1.255528 -0.076749 -0.178779
        -0.078411  0.930809  0.147602
         0.004733  0.691367  0.303900""",
}
MATRICES = {name: np.array(rows.split(), float).reshape(3, 3) for name, rows in ROWS.items()}


def linear(encoded: Array) -> Array:
    """Linear light of sRGB components, 0 to 1 (IEC 61966-2-1)."""
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def encoded(light: Array) -> Array:
    """The inverse of `linear`."""
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def simulated(colors: Array, deficiency: str) -> Array:
    """Colours [..., 3] of sRGB components, 0 to 1, as an eye with the deficiency sees them."""
    seen = linear(np.asarray(colors, float)) @ MATRICES[deficiency].T
    return encoded(np.clip(seen, 0.0, 1.0))


def simulate(picture: Path, deficiency: str) -> Path:
    """Writes the simulated picture beside the picture and returns where. Raises ValueError where it cannot be read."""
    image = QImage(str(picture)).convertToFormat(QImage.Format.Format_RGBA8888)
    if image.isNull():
        raise ValueError(f"{picture}: not a picture that can be read")
    shape = (image.height(), image.bytesPerLine() // 4, 4)
    pixels = np.frombuffer(image.constBits(), np.uint8).reshape(shape).copy()
    pixels[..., :3] = np.rint(simulated(pixels[..., :3] / 255, deficiency) * 255).astype(np.uint8)
    result = QImage(pixels.data, image.width(), image.height(), shape[1] * 4, QImage.Format.Format_RGBA8888)
    target = picture.with_name(f"{picture.stem}-{deficiency}.png")
    if not result.save(str(target)):
        raise OSError(f"{target}: cannot be written")
    return target


if __name__ == "__main__":
    for name in sys.argv[1:] or sys.exit(__doc__):
        for each in MATRICES:
            print(simulate(Path(name), each))
