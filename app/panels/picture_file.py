"""A widget as a file: a picture as it looks, or a drawing to edit."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPixmap, QRegion
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QWidget

from app import theme

SHARP, MARGIN = 2, 12  # device pixels a pixel in a picture that is saved; pixels of the design around it
PICTURE, DRAWING = ".png", ".svg"


def write_picture(widget: QWidget, path: Path, endings: str, ground: QColor | None = None) -> None:
    """As PNG, or as whatever picture the ending asks for; with a `ground`, a widget that has none of its own, and a
    margin. Raises OSError, which names the `endings` that can be."""
    margin = theme.px(MARGIN) if ground is not None else 0
    pixmap = QPixmap((widget.size() + QSize(2 * margin, 2 * margin)) * SHARP)
    pixmap.setDevicePixelRatio(SHARP)
    pixmap.fill(ground if ground is not None else Qt.GlobalColor.transparent)
    _render(widget, pixmap, margin, ground)
    if not pixmap.save(str(path)):
        raise OSError(f"no picture can be written there; choose a name that ends with {endings}")


def write_drawing(widget: QWidget, path: Path, title: str, ground: QColor | None = None) -> None:
    """As SVG. Raises OSError."""
    path.touch()  # raises what Qt would only print
    margin = theme.px(MARGIN) if ground is not None else 0
    size = widget.size() + QSize(2 * margin, 2 * margin)
    generator = QSvgGenerator()
    generator.setFileName(str(path))
    generator.setResolution(widget.logicalDpiY())  # else its points are smaller than those on the screen
    generator.setSize(size)
    generator.setViewBox(QRect(QPoint(), size))
    generator.setTitle(title)
    painter = QPainter(generator)
    if ground is not None:
        painter.fillRect(QRect(QPoint(), size), ground)
    _render(widget, painter, margin, ground)
    painter.end()


def _render(widget: QWidget, target: QPixmap | QPainter, margin: int, ground: QColor | None) -> None:
    flags = QWidget.RenderFlag.DrawChildren
    if ground is None:
        flags |= QWidget.RenderFlag.DrawWindowBackground
    widget.render(target, QPoint(margin, margin), QRegion(), flags)
