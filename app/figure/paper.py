"""A widget as a figure: PDF with its fonts in it, SVG with its text as outlines, PNG for its place on the page."""

from collections.abc import Callable
from html import escape
from pathlib import Path

from PySide6.QtCore import QBuffer, QIODevice, QMarginsF, QPoint, QRect, QSizeF
from PySide6.QtGui import QImage, QPageSize, QPainter, QPdfWriter, QRegion
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QWidget

from app.figure.note import Note
from app.figure.outlines import outlined
from app.figure.width import Width
from app.language import tr
from app.ui.look import theme

XMP = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xmp="http://ns.adobe.com/xap/1.0/">
<dc:title><rdf:Alt><rdf:li xml:lang="x-default">{title}</rdf:li></rdf:Alt></dc:title>
<dc:description><rdf:Alt><rdf:li xml:lang="x-default">{about}</rdf:li></rdf:Alt></dc:description>
<xmp:CreatorTool>{maker}</xmp:CreatorTool></rdf:Description></rdf:RDF></x:xmpmeta><?xpacket end="w"?>"""


def write(widget: QWidget, path: Path, width: Width, note: Note) -> None:
    """As the ending says. Raises OSError."""
    path.touch()  # raises what Qt would only print
    WRITERS[path.suffix](widget, path, width, note)


def _write_pdf(widget: QWidget, path: Path, width: Width, note: Note) -> None:
    size = QSizeF(width.points, width.scale * widget.height())
    writer = QPdfWriter(str(path))
    writer.setResolution(widget.logicalDpiY())  # fonts are given in points of the screen
    writer.setPageSize(QPageSize(size, QPageSize.Unit.Point, "figure", QPageSize.SizeMatchPolicy.ExactMatch))
    writer.setPageMargins(QMarginsF())
    writer.setTitle(note.title)
    writer.setCreator(note.maker)
    told = {"title": escape(note.title), "about": escape(note.about), "maker": escape(note.maker)}
    writer.setDocumentXmpMetadata(XMP.format(**told).encode())
    painter = QPainter(writer)
    painter.scale(*2 * (width.scale * widget.logicalDpiY() / 72,))
    _draw(widget, painter)


def _write_svg(widget: QWidget, path: Path, width: Width, note: Note) -> None:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    generator = QSvgGenerator()
    generator.setOutputDevice(buffer)
    generator.setResolution(widget.logicalDpiY())
    generator.setSize(widget.size())
    generator.setViewBox(QRect(QPoint(), widget.size()))
    generator.setTitle(note.title)
    generator.setDescription(note.about)
    _draw(widget, QPainter(generator))
    size = f"{width.points:g}pt", f"{width.scale * widget.height():g}pt"
    path.write_text(outlined(bytes(buffer.data().data()).decode(), *size), encoding="utf-8")


def _write_png(widget: QWidget, path: Path, width: Width, note: Note) -> None:
    image = QImage(width.pixels, round(widget.height() * width.ratio), QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(width.ratio)
    _draw(widget, QPainter(image))
    image.setDotsPerMeterX(round(width.dots_an_inch / 0.0254))
    image.setDotsPerMeterY(round(width.dots_an_inch / 0.0254))
    for key, words in (("Title", note.title), ("Description", note.about), ("Software", note.maker)):
        image.setText(key, words)
    if not image.save(str(path)):
        raise OSError(tr("no picture can be written there"))


WRITERS: dict[str, Callable[[QWidget, Path, Width, Note], None]] = {
    ".pdf": _write_pdf,
    ".svg": _write_svg,
    ".png": _write_png,
}


def _draw(widget: QWidget, painter: QPainter) -> None:
    painter.fillRect(widget.rect(), theme.current().panel)
    widget.render(painter, QPoint(), QRegion(), QWidget.RenderFlag.DrawChildren)
    painter.end()
