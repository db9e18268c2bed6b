"""The words that a widget paints, as it paints them: how large they are, and how well they stand out."""

import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QBuffer, QPoint, QRect, QRectF
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QImage, QPainter, QRegion, QTransform
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QWidget

from engine.trace import Array
from tests.app.contrast import contrast

SVG = "{http://www.w3.org/2000/svg}"
LEAST, RATIO = 18, 7.0  # pixels, and the contrast of what a room reads
GROUND = 0.12  # of the pixels around words: what has so many of one colour is their ground
NEAR = 24  # of 255, a channel: as near to the ink are the cores of its strokes


@dataclass(frozen=True)
class Word:
    """`pixels` is the size of its font; `contrast` to the worst of what lies under it, 0 where its ink is not seen."""

    text: str
    pixels: float
    contrast: float


def painted_words(widget: QWidget) -> list[Word]:
    """All words that the widget and its children paint; from a drawing of it, and from the window's pixels."""
    window = widget.window()
    image = window.grab(QRect(widget.mapTo(window, QPoint()), widget.size())).toImage()
    pixels = np.frombuffer(image.convertToFormat(QImage.Format.Format_RGB32).constBits(), np.uint32)
    pixels = pixels.reshape(image.height(), -1)[:, : image.width()] & 0xFFFFFF
    return [_word(pixels, image.devicePixelRatio(), *found) for found in _texts(_drawing(widget), QTransform(), 1.0)]


def unread_from_afar(*widgets: QWidget) -> list[Word]:
    """What is painted and cannot be read from the back row."""
    return [word for each in widgets for word in painted_words(each) if word.pixels < LEAST or word.contrast < RATIO]


def _drawing(widget: QWidget) -> ElementTree.Element:
    generator, buffer = QSvgGenerator(), QBuffer()
    buffer.open(QBuffer.OpenModeFlag.WriteOnly)
    generator.setOutputDevice(buffer)
    generator.setResolution(96)
    generator.setSize(widget.size())
    generator.setViewBox(QRect(QPoint(), widget.size()))
    painter = QPainter(generator)
    widget.render(
        painter, QPoint(), QRegion(), QWidget.RenderFlag.DrawWindowBackground | QWidget.RenderFlag.DrawChildren
    )
    painter.end()
    return ElementTree.fromstring(bytes(buffer.data().data()))


def _texts(
    element: ElementTree.Element, transform: QTransform, opacity: float
) -> Iterator[tuple[str, QFont, QColor, QRectF]]:
    if (written := element.get("transform", "")).startswith("matrix("):
        numbers = map(float, written.removeprefix("matrix(").rstrip(")").replace(",", " ").split())
        transform = QTransform(*numbers) * transform
    if element.tag == f"{SVG}text" and (text := "".join(element.itertext())).strip():
        font = QFont(element.get("font-family", "").split(",")[0].strip("'"))
        font.setPixelSize(
            max(1, round(float(element.get("font-size", "0")) * math.hypot(transform.m11(), transform.m12())))
        )
        font.setWeight(QFont.Weight(int(element.get("font-weight", "400"))))
        color = QColor(element.get("fill", "#000000"))
        color.setAlphaF(float(element.get("fill-opacity", "1")) * opacity)
        metrics = QFontMetricsF(font)
        x, y = float(element.get("x", "0")), float(element.get("y", "0"))
        box = QRectF(x, y - metrics.ascent(), metrics.horizontalAdvance(text), metrics.height())
        yield text.strip(), font, color, transform.mapRect(box)
    for child in element:
        yield from _texts(child, transform, opacity)


def _word(pixels: Array, ratio: float, text: str, font: QFont, color: QColor, box: QRectF) -> Word:
    left, right = (max(0, round(x * ratio)) for x in (box.left(), box.right()))
    top, bottom = (max(0, round(y * ratio)) for y in (box.top(), box.bottom()))
    found, counts = np.unique(pixels[top:bottom, left:right], return_counts=True)
    channels = found[:, None] >> np.array([16, 8, 0], np.uint32) & 255
    near = (np.abs(channels.astype(int) - color.getRgb()[:3]) <= NEAR).all(axis=1)
    if not near.any():
        return Word(text, font.pixelSize(), 0.0)
    grounds = [QColor(rgb) for rgb in found[~near & (counts >= GROUND * counts.sum())].tolist()]
    return Word(text, font.pixelSize(), min((contrast(color, ground) for ground in grounds), default=0.0))
