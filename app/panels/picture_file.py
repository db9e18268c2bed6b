"""A widget as a file: a picture as it looks, or a drawing to edit."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QPoint, QRect
from PySide6.QtGui import QColor, QPainter, QPixmap
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QWidget

SHARP = 2  # device pixels a pixel in a picture that is saved
PICTURE, DRAWING = ".png", ".svg"


def write_picture(widget: QWidget, path: Path, ground: QColor, endings: str) -> None:
    """As PNG, or as whatever picture the ending asks for. Raises OSError, which names the `endings` that can be."""
    pixmap = QPixmap(widget.size() * SHARP)
    pixmap.setDevicePixelRatio(SHARP)
    pixmap.fill(ground)
    widget.render(pixmap)
    if not pixmap.save(str(path)):
        raise OSError(f"no picture can be written there; choose a name that ends with {endings}")


def write_drawing(widget: QWidget, path: Path, title: str) -> None:
    """As SVG. Raises OSError."""
    path.touch()  # raises what Qt would only print
    generator = QSvgGenerator()
    generator.setFileName(str(path))
    generator.setSize(widget.size())
    generator.setViewBox(QRect(0, 0, widget.width(), widget.height()))
    generator.setTitle(title)
    painter = QPainter(generator)
    widget.render(painter, QPoint())
    painter.end()
