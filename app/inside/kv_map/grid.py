"""The map of a paged pool: a cell a block."""

import numpy as np
from PySide6.QtCore import QPointF, QRect, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QMouseEvent, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy

from app.inside.kv_map.flashes import Marks
from app.inside.kv_map.pixels import Grid, PoolInk, grid_for
from app.inside.kv_map.state import KvState
from app.inside.kv_map.words import tip_words
from app.language import tr
from app.plot.image import PixelImage, parts_of
from app.plot.inked import inked, say_on_plate
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted
from engine.trace import Array

LARGEST, STAGE_LARGEST = 44, 84  # pixels of a cell
JOINED = 6  # from which on a line joins the blocks of a table
MOST_JOINED = 512
FRAME_MS = 33


class KvGrid(Painted):
    """Draws the state it was shown last: `shown` blocks from the pool's first on. `pointed` is the block under the
    cursor, -1 for none."""

    block_chosen = Signal(int)  # pointed at by a click or a key
    owner_asked = Signal(int)  # clicked, or entered: its owner should be selected

    hint, least = (320, 240), (160, 80)
    small = Face(11, 600)

    def __init__(self) -> None:
        super().__init__("kv_grid", tr("KV blocks"), focus=True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.pointed, self.shown = -1, 0
        self.marks = Marks()
        self._state: KvState | None = None
        self._selected = -1
        self._fade = QTimer(self)
        self._fade.setInterval(FRAME_MS)
        self._fade.timeout.connect(self._on_fade)
        self.restyle()

    def restyle(self) -> None:
        t = theme.current()
        ground, free, line = map(parts_of, (t.panel, theme.over(t.hairline, t.panel), t.secondary))
        self._ink = PoolInk(ground, free, line, lambda request: parts_of(theme.request_color(request)))
        self._image: PixelImage | None = None
        super().restyle()

    def show_state(self, state: KvState | None, selected: int, before: int, shown: int) -> None:
        """Shows so many of the pool's first blocks, which are all that anybody has; what happened after the step of
        place `before` is marked for a moment."""
        self._state, self._selected, self._image, self.shown = state, selected, None, shown
        self.pointed = min(self.pointed, shown - 1)
        if state is None:
            self.marks = Marks()
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
        width, height = int(self.width() * ratio), int(self.height() * ratio)
        largest = STAGE_LARGEST if theme.presenting() else LARGEST
        return grid_for(self.shown, width, height, round(largest * theme.zoom() * ratio))

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

    # -- painting -------------------------------------------------------------------------------------------------

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        state = self._state
        if state is None:
            return
        grid, ratio = self.grid, self.devicePixelRatioF()
        if self._image is None:
            self._image = PixelImage(self._ink.paint(state, grid, self._selected), ratio)
        painter.drawImage(QPointF(0, 0), self._image)
        tables = state.samples(self._selected)
        if grid.size[0] / ratio >= self.small.width("00") + 1:
            self._numbers(painter, state, tables)
        elif grid.pitch / ratio >= JOINED * theme.zoom():
            self._lines(painter, tables)
        else:
            self._dots(painter, tables)
        self.marks.paint(painter, self.box)
        if self.pointed >= 0:
            self._cursor(painter, self.box(self.pointed))

    def _numbers(self, painter: QPainter, state: KvState, tables: dict[int, Array]) -> None:
        """The place of each of the selected request's blocks; how many share each of the other shared ones."""
        face, t = self.small, theme.current()
        texts = {block: str(state.place[block]) for table in tables.values() for block in table.tolist()}
        if not texts:
            shared = np.flatnonzero(state.references > 1)
            texts = {block: str(count) for block, count in zip(shared.tolist(), state.references[shared].tolist())}
        for block, text in texts.items():
            box = self.box(block)
            if face.width(text) <= box.width():
                middle, baseline = box.center().x(), box.center().y() + face.cap / 2
                share = int(state.filled[block]) / state.size
                if abs(box.height() * (share - 0.5)) < face.cap:  # the edge of what is filled runs through the words
                    say_on_plate(painter, face, middle - face.width(text) / 2, baseline, text, t.text)
                else:
                    face.say(painter, middle, baseline, text, t.panel if share > 0.5 else t.text, before=0.5)

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
        out = theme.zoom()
        with inked(painter, line=QPen(t.accent if self.hasFocus() else t.text, 2 * out)):
            painter.drawRect(box.adjusted(-out, -out, out, out))

    def _on_fade(self) -> None:
        if not self.marks:
            self._fade.stop()
        self.update()

    def hideEvent(self, event: QHideEvent) -> None:
        self._fade.stop()
        self.marks = Marks()

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
        one, last, key = self.grid.each, self.shown - 1, Qt.Key(event.key())
        row, keys = self.grid.columns * one, Qt.Key
        moves = {keys.Key_Left: -one, keys.Key_Right: one, keys.Key_Up: -row, keys.Key_Down: row}
        targets = {key: self.pointed + move if self.pointed >= 0 else 0 for key, move in moves.items()}
        targets |= {keys.Key_Home: 0, keys.Key_End: last}
        if key in targets:
            if 0 <= targets[key] <= last:
                self.point_at(targets[key])
                self.block_chosen.emit(targets[key])
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.pointed >= 0:
            self.owner_asked.emit(self.pointed)
        else:
            super().keyPressEvent(event)

    def tip(self, at: QPointF) -> str:
        block = self.block_at(at)
        return tip_words(self._state, block) if block >= 0 and self._state is not None else ""
