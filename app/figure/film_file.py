"""Pictures, one after another, as WebM, GIF or animated WebP; written by PyAV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import numpy as np
from PySide6.QtCore import QPoint
from PySide6.QtGui import QImage, QRegion
from PySide6.QtWidgets import QWidget

from app.figure.note import Note
from app.ui.look import theme
from engine.trace import Array

CODECS: dict[str, tuple[str, str, dict[str, str]]] = {  # by ending: the codec, its pixels, its options
    ".webm": ("libvpx-vp9", "yuv420p", {"crf": "18", "b": "0", "deadline": "good", "cpu-used": "4", "row-mt": "1"}),
    ".gif": ("gif", "pal8", {}),
    ".webp": ("libwebp_anim", "bgra", {"lossless": "1", "compression_level": "6", "quality": "90"}),
}
FORMATS = {".webm": "webm", ".gif": "gif", ".webp": "webp"}


def picture_of(widget: QWidget) -> Array:
    """Its pixels [height, width, 4], blue first."""
    image = QImage(widget.size(), QImage.Format.Format_RGB32)
    image.fill(theme.current().panel)
    widget.render(image, QPoint(), QRegion(), QWidget.RenderFlag.DrawChildren)
    pixels = np.frombuffer(image.constBits(), np.uint8)
    return pixels.reshape(image.height(), image.bytesPerLine() // 4, 4)[:, : image.width()].copy()


class FilmFile:
    """Takes the pictures in their order. Use it as a context manager; raises OSError."""

    def __init__(self, path: Path, size: tuple[int, int], fps: int, note: Note) -> None:
        import av  # an extra of its own, which `check_video` looks for

        self._av, self._size, self._fps = av, size, fps
        codec, pixels, options = CODECS[path.suffix]
        loop = {"loop": "0"} if path.suffix != ".webm" else {}  # again and again
        self._file = self._av.open(str(path), "w", format=FORMATS[path.suffix], options=loop)
        self._file.metadata.update(title=note.title, comment=note.about, encoder=note.maker)
        stream: Any = self._file.add_stream(codec, rate=fps, options=options)
        stream.width, stream.height = size
        stream.pix_fmt = pixels
        self._stream = stream
        self._mapper: _Filter | None = None
        self._count = 0

    @property
    def wants_colors(self) -> bool:
        """Whether it has 256 colours for all pictures, which are to be chosen first."""
        return self._stream.pix_fmt == "pal8"

    def choose_colors(self, pictures: Iterable[Array]) -> None:
        """From some of the pictures."""
        chooser = _Filter(self._av, "palettegen", "stats_mode=full", [self._size], self._fps)
        for number, picture in enumerate(pictures):
            chooser.push(0, self._frame(picture, number))
        chooser.push(0, None)
        palette = chooser.pull()
        self._mapper = _Filter(
            self._av, "paletteuse", "dither=none:diff_mode=rectangle", [self._size, (16, 16)], self._fps
        )
        self._mapper.push(1, palette)
        self._mapper.push(1, None)

    def add(self, picture: Array) -> None:
        frame = self._frame(picture, self._count)
        self._count += 1
        if self._mapper is not None:
            self._mapper.push(0, frame)
            frame = self._mapper.pull()
        self._file.mux(self._stream.encode(frame))

    def _frame(self, picture: Array, number: int) -> Any:
        frame = self._av.VideoFrame.from_ndarray(picture, format="bgra")
        frame.pts, frame.time_base = number, Fraction(1, self._fps)
        return frame

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self._file.mux(self._stream.encode(None))
        self._file.close()


class _Filter:
    """One of FFmpeg's filters, which takes pictures of these sizes."""

    def __init__(self, av: ModuleType, name: str, options: str, sizes: Sequence[tuple[int, int]], fps: int) -> None:
        graph = self._graph = av.filter.Graph()
        each, self._out = graph.add(name, options), graph.add("buffersink")
        self._sources = []
        for place, (width, height) in enumerate(sizes):
            source = graph.add_buffer(width=width, height=height, format="bgra", time_base=Fraction(1, fps))
            source.link_to(each, 0, place)
            self._sources.append(source)
        each.link_to(self._out)
        graph.configure()

    def push(self, source: int, frame: Any) -> None:
        """None: no more."""
        self._sources[source].push(frame)

    def pull(self) -> Any:
        return self._out.pull()
