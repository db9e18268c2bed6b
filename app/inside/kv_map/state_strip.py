"""States of layers that keep one, below the pool: a cell for each that may run, in the colour of whose it is. Blocks
come with every few tokens; a state is all there from the first token on, and never grows."""

from PySide6.QtCore import QPointF, QRect, QRectF, QSize
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QSizePolicy

from app.inside.kv_map.pixels import DIMMED
from app.inside.kv_map.state import KvState
from app.inside.kv_map.tables import SAMPLES
from app.language import digits, tr, trn
from app.plot.inked import mixed
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted
from app.words import bytes_words

WIDTH, GAP, HEIGHT = 18, 2, 8  # pixels of the design: a cell, and between two
NARROW = 4


class StateStrip(Painted):
    """One line, its cells as narrow as they must be for all slots; what has no room is counted at its end."""

    face = Face(11)

    def __init__(self) -> None:
        super().__init__("kv_states")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._owners: list[int] = []  # by slot, -1 for nobody
        self._bytes, self._selected = 0, -1
        self._title = ""

    def show_state(self, state: KvState, selected: int = -1) -> None:
        """Others than a selected request are muted, as their blocks are."""
        tables = state.tables
        owners = [-1] * state.state_slots
        for handle in tables.live.tolist():
            slot = int(tables.slot[handle])
            if 0 <= slot < len(owners):
                owners[slot] = int(tables.key[handle]) // SAMPLES
        selected = selected if selected in owners else -1
        if (owners, state.state_bytes, selected) == (self._owners, self._bytes, self._selected):
            return
        self._selected = selected
        self._owners, self._bytes = owners, state.state_bytes
        self._title = tr("states, {bytes} each", bytes=bytes_words(self._bytes))
        self.setAccessibleName(self.words())
        self.update()

    def words(self) -> str:
        """ "States of 3 of 8 requests that may run, 160 KiB each"."""
        taken = sum(owner >= 0 for owner in self._owners)
        return trn(
            "States of {taken:,} of {count:,} request that may run, {bytes} each",
            "States of {taken:,} of {count:,} requests that may run, {bytes} each",
            len(self._owners),
            taken=taken,
            bytes=bytes_words(self._bytes),
        )

    def sizeHint(self) -> QSize:
        return QSize(theme.px(200), round(self.face.height) + theme.px(2))

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self.sizeHint().height())

    def _cells(self) -> list[QRectF]:
        """Of as many slots as there is room for."""
        begin, gap, count = self.face.width(self._title) + theme.px(8), theme.px(GAP), len(self._owners)
        room = self.width() - begin
        width = min(theme.px(WIDTH), room / max(count, 1) - gap)
        if width < theme.px(NARROW):
            width = theme.px(NARROW)
            count = max(0, int((room - self.face.width("+ 9,999") - gap) / (width + gap)))
        height = theme.px(HEIGHT)
        top = round((self.height() - height) / 2)
        return [QRectF(begin + i * (width + gap), top, width, height) for i in range(count)]

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        face, t, middle = self.face, theme.current(), self.height() / 2
        face.say(painter, 0, middle + face.cap / 2, self._title, t.secondary)
        cells = self._cells()
        for owner, box in zip(self._owners, cells):
            if owner >= 0:
                color = theme.request_color(owner)
                painter.fillRect(box, color if self._selected in (-1, owner) else mixed(color, DIMMED))
            else:
                painter.setPen(theme.over(t.edge, t.panel))
                painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
        if left := len(self._owners) - len(cells):
            x = (cells[-1].right() if cells else face.width(self._title)) + theme.px(8)
            face.say(painter, x, middle + face.cap / 2, digits(f"+ {left:,}"), t.secondary)

    def tip(self, at: QPointF) -> str:
        """Whose the cell is, else all of them."""
        for owner, box in zip(self._owners, self._cells()):
            if box.contains(at) and owner >= 0:
                return tr(
                    "request {request:,}: what layers without keys and values keep of it, {bytes} however long it is",
                    request=owner,
                    bytes=bytes_words(self._bytes),
                )
        return self.words()
