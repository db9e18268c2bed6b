"""The map of a paged pool: a cell a block."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QColor,
    QHideEvent,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPolygonF,
)
from PySide6.QtWidgets import QSizePolicy

from app.inside.kv_map.flashes import Marks
from app.inside.kv_map.pixels import Grid, PoolInk, grid_for
from app.inside.kv_map.state import KvState
from app.inside.kv_map.words import tip_words
from app.ui import theme
from app.ui.font_face import FontFace
from app.ui.painted import Painted
from engine.trace import Array

LARGEST = 22  # pixels of a cell
JOINED = 6  # from which on a line joins the blocks of a table
MOST_JOINED = 512
FRAME_MS = 33


def _parts(color: QColor) -> Array:
    return np.array([color.redF(), color.greenF(), color.blueF()], np.float32)


class KvGrid(Painted):
    """Draws the state it was shown last. `pointed` is the block under the cursor, -1 for none."""

    block_chosen = Signal(int)  # pointed at by a click or a key
    owner_asked = Signal(int)  # clicked, or entered: its owner should be selected

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("kv_grid")
        self.setAccessibleName("KV blocks")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.pointed = -1
        self.marks = Marks()
        self._state: KvState | None = None
        self._selected = -1
        self._image: QImage | None = None
        self._pixels: Array | None = None  # what the image shows: it must outlive it
        self._grid_of: tuple[tuple[int, int, int, float, float], Grid] | None = None
        self._fade = QTimer(self)
        self._fade.setInterval(FRAME_MS)
        self._fade.timeout.connect(self._on_fade)
        self.restyle()

    def restyle(self) -> None:
        """Takes the theme's colours and fonts anew."""
        t = theme.current()
        free = theme.over(t.hairline, t.panel)
        own: Callable[[int], Array] = lambda request: _parts(theme.request_color(request))  # noqa: E731
        self._paint = PoolInk(_parts(t.panel), _parts(free), _parts(t.secondary), own)
        self._small = FontFace(theme.ui(11, 600))
        self._image = None
        self.updateGeometry()
        self.update()

    def show_state(self, state: KvState | None, selected: int, before: int) -> None:
        """Shows the pool; what happened after the step of place `before` is marked for a moment."""
        self._state, self._selected, self._image = state, selected, None
        if state is None:
            self.marks.clear()
        elif self.isVisible():
            self.marks.note(state, before)
            if self.marks:
                self._fade.start()
        self.update()

    def point_at(self, block: int) -> None:
        """Moves the block cursor; -1: nowhere."""
        if block != self.pointed:
            self.pointed = block
            self.update()

    @property
    def grid(self) -> Grid:
        """The cells as they are laid out now, in device pixels."""
        assert self._state is not None
        ratio = self.devicePixelRatioF()
        key = (self._state.blocks, self.width(), self.height(), ratio, theme.zoom())
        if self._grid_of is None or self._grid_of[0] != key:
            width, height = int(self.width() * ratio), int(self.height() * ratio)
            self._grid_of = key, grid_for(key[0], width, height, round(LARGEST * theme.zoom() * ratio))
        return self._grid_of[1]

    def box(self, block: int) -> QRectF:
        """A block's cell, in the widget."""
        ratio, grid = self.devicePixelRatioF(), self.grid
        (x, y), (width, height) = grid.corner(block), grid.size
        return QRectF(x / ratio, y / ratio, width / ratio, height / ratio)

    def block_at(self, point: QPointF) -> int:
        """The block there; -1 beside all."""
        if self._state is None:
            return -1
        ratio = self.devicePixelRatioF()
        return self.grid.block_at(point.x() * ratio, point.y() * ratio)

    def sizeHint(self) -> QSize:
        return QSize(theme.px(320), theme.px(240))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(160), theme.px(80))

    # -- painting -------------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        state = self._state
        if state is None:
            return
        grid, ratio = self.grid, self.devicePixelRatioF()
        numbered = grid.size[0] / ratio >= self._small.width("00") + 1
        if self._image is None:
            self._pixels = self._paint.paint(state, grid, self._selected, notches=True)
            height, width = self._pixels.shape
            self._image = QImage(self._pixels.data, width, height, 4 * width, QImage.Format.Format_RGB32)
            self._image.setDevicePixelRatio(ratio)
        painter = QPainter(self)
        painter.drawImage(QPointF(0, 0), self._image)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        tables = state.samples(self._selected)
        if numbered:
            self._numbers(painter, state, tables)
        elif grid.pitch / ratio >= JOINED * theme.zoom():
            self._lines(painter, tables)
        else:
            self._dots(painter, tables)
        self.marks.paint(painter, grid, ratio)
        if 0 <= self.pointed < state.blocks:
            self._cursor(painter, self.box(self.pointed))

    def _numbers(self, painter: QPainter, state: KvState, tables: dict[int, Array]) -> None:
        """The place of each of the selected request's blocks; how many share each of the other shared ones."""
        face = self._small
        painter.setFont(face.font)
        painter.setPen(theme.current().panel)
        chosen = {int(block): place for table in tables.values() for place, block in enumerate(table.tolist())}
        texts = {block: str(place) for block, place in chosen.items()}
        if not chosen:
            shared = np.flatnonzero(state.references > 1)
            texts = {int(block): str(int(state.references[block])) for block in shared}
        for block, text in texts.items():
            box = self.box(block)
            if face.width(text) <= box.width():
                self._number(painter, box, text, full=int(state.filled[block]) * 2 > state.size)

    def _number(self, painter: QPainter, box: QRectF, text: str, full: bool) -> None:
        """In the middle of a cell, where it can be read over both its parts."""
        face, t = self._small, theme.current()
        painter.setPen(t.panel if full else t.text)
        x = box.center().x() - face.width(text) / 2
        face.draw(painter, x, box.center().y() + face.metrics.capHeight() / 2, text)

    def _lines(self, painter: QPainter, tables: dict[int, Array]) -> None:
        """A line through the selected request's blocks in their logical order."""
        color = theme.faded(theme.current().text, 0.75)
        painter.setPen(QPen(color, 1))
        for table in tables.values():
            points = [self.box(block).center() for block in table[:MOST_JOINED].tolist()]
            painter.drawPolyline(QPolygonF(points))
            if points:
                painter.setBrush(color)
                painter.drawEllipse(points[0], 2 * theme.zoom(), 2 * theme.zoom())

    def _dots(self, painter: QPainter, tables: dict[int, Array]) -> None:
        """The selected request's blocks, no smaller than can be seen."""
        own, least = theme.request_color(self._selected), theme.px(4)
        for table in tables.values():
            for block in table[:MOST_JOINED].tolist():
                c = self.box(block).center()
                painter.fillRect(QRectF(c.x() - least / 2, c.y() - least / 2, least, least), own)

    def _cursor(self, painter: QPainter, box: QRectF) -> None:
        t = theme.current()
        least = theme.px(5)
        if box.width() < least:
            box = QRectF(box.center().x() - least / 2, box.center().y() - least / 2, least, least)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        out = theme.zoom()
        painter.setPen(QPen(t.accent if self.hasFocus() else t.text, 2 * theme.zoom()))
        painter.drawRect(box.adjusted(-out, -out, out, out))

    def _on_fade(self) -> None:
        if not self.marks:
            self._fade.stop()
        self.update()

    def hideEvent(self, event: QHideEvent) -> None:
        self._fade.stop()
        self.marks.clear()

    # -- the person -----------------------------------------------------------------------------------------------

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is not Qt.MouseButton.LeftButton or self._state is None:
            return
        block = self.block_at(event.position())
        self.point_at(block)
        self.block_chosen.emit(block)
        self.owner_asked.emit(block)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self._state is None:
            super().keyPressEvent(event)
            return
        one, last = self.grid.each, self._state.blocks - 1
        row, at, keys = self.grid.columns * one, self.pointed, Qt.Key
        moves = {keys.Key_Left: at - one, keys.Key_Right: at + one, keys.Key_Up: at - row, keys.Key_Down: at + row}
        ends = {keys.Key_Home: 0, keys.Key_End: last}
        key = Qt.Key(event.key())
        if key in moves or key in ends:
            target = ends[key] if key in ends else moves[key] if at >= 0 else 0
            if 0 <= target <= last:
                self.point_at(target)
                self.block_chosen.emit(target)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.pointed >= 0:
            self.owner_asked.emit(self.pointed)
        else:
            super().keyPressEvent(event)

    def tip(self, at: QPointF) -> str:
        block = self.block_at(at)
        return tip_words(self._state, block) if block >= 0 and self._state is not None else ""
