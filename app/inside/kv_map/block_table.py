"""The block table of one request: logical block, physical block, how far it is filled; a part for each sample."""

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QSizePolicy

from app.inside.kv_map.state import KvState
from app.language import digits, tr, trn
from app.plot.inked import inked
from app.ui.look import theme
from app.ui.look.font_face import Face

ROW, WIDTH = 20, 240
HEAD = 2  # rows at the top that do not scroll
HEADING = -1  # in place of a block
LOGICAL, PHYSICAL, FILLED = tr("logical"), tr("physical"), tr("filled")


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table, or a sample's heading."""

    text: str
    block: int = HEADING
    place: int = 0
    share: float = 0.0  # filled
    references: int = 0


def lines_of(state: KvState, request: int) -> list[Line]:
    """All lines of a request's tables; samples have headings where there are several."""
    samples, lines = state.samples(request), []
    for branch, table in samples.items():
        if len(samples) > 1 or branch:
            head = trn("sample {n} · {count:,} block", "sample {n} · {count:,} blocks", len(table), n=branch + 1)
            lines.append(Line(head))
        before = -1
        for block in table.tolist():
            place = int(state.place[block])
            if place > before + 1:
                said = trn("{count:,} block is forgotten", "{count:,} blocks are forgotten", place - before - 1)
                lines.append(Line(said))
            before = place
            filled = int(state.filled[block])
            words = f"{filled}/{state.size}"
            lines.append(Line(words, block, place, filled / state.size, int(state.references[block])))
    return lines


class KvBlockTable(QAbstractScrollArea):
    """The figure of the PagedAttention paper, live."""

    block_chosen = Signal(int)
    face, strong, small = Face(12), Face(12, 600), Face(11)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("kv_block_table")
        self.setAccessibleName(tr("Block table"))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setAutoFillBackground(False)
        self.lines: list[Line] = []
        self._request, self._pointed, self._title = -1, HEADING, ""
        theme.changes.theme_changed.connect(self._refit)
        self._refit()

    def _refit(self) -> None:
        """Other lines, or another zoom."""
        self.verticalScrollBar().setSingleStep(theme.px(ROW))
        self.updateGeometry()
        self._fit()
        self.viewport().update()

    def show_state(self, state: KvState, request: int, pointed: int) -> None:
        """Shows the tables of a request that holds blocks; `pointed` is the block to point out."""
        if request != self._request:
            self.verticalScrollBar().setValue(0)
        self._request, self._pointed = request, pointed
        self.lines = lines_of(state, request)
        own = [line for line in self.lines if line.block != HEADING]
        tokens = round(sum(line.share for line in own) * state.size)
        blocks = len({line.block for line in own})
        self._title = trn("#{request} · {count:,} block", "#{request} · {count:,} blocks", blocks, request=request)
        told = (
            tr("{logical} to {physical}, {tokens} filled", logical=line.place, physical=line.block, tokens=line.text)
            for line in own[:32]
        )
        parts = self._title, ", ".join(told), tr("{count} tokens in all tables", count=tokens)
        self.setAccessibleDescription("; ".join(parts))
        self._refit()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(WIDTH), theme.px(ROW) * (2 + min(8, max(3, len(self.lines)))))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(160), theme.px(ROW) * 5)

    def _fit(self) -> None:
        bar, height = self.verticalScrollBar(), self.viewport().height()
        bar.setPageStep(height)
        bar.setRange(0, max(0, (len(self.lines) + HEAD) * theme.px(ROW) - height))

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()

    # -- painting -------------------------------------------------------------------------------------------------

    def _columns(self) -> tuple[float, float, float, float]:
        """Right ends of the logical and the physical numbers, and where the bar and its words begin."""
        face, small = self.face, self.small
        wide = face.width("0" * max((len(digits(f"{line.block:,}")) for line in self.lines), default=1))
        logical = max(small.width(LOGICAL), face.width("000"))
        physical = logical + theme.px(30) + max(wide, small.width(PHYSICAL))
        words = max((face.width(line.text) for line in self.lines if line.block >= 0), default=0.0)
        words = max(words + face.width(" ×00"), small.width(FILLED))
        return logical, physical, physical + theme.px(14), self.viewport().width() - words - theme.px(4)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        row, top = theme.px(ROW), self.verticalScrollBar().value()
        width, below = self.viewport().width(), HEAD * row
        first, last = top // row, (top + self.viewport().height() - below) // row  # whole lines
        columns = self._columns()
        for i, line in enumerate(self.lines[first:last], first):
            self._line(painter, line, QRectF(0, below + i * row - top, width, row), columns)
        painter.fillRect(QRectF(0, 0, width, below), theme.current().panel)
        self._head(painter, row, columns)

    def _head(self, painter: QPainter, row: int, columns: tuple[float, float, float, float]) -> None:
        """Whose tables these are, and what the columns are."""
        t, small, dot = theme.current(), self.small, theme.px(8)
        logical, physical, left, _ = columns
        with inked(painter, theme.request_color(self._request)):
            painter.drawEllipse(QPointF(dot / 2, row / 2), dot / 2, dot / 2)
        self.strong.say(painter, dot + theme.px(6), row / 2 + self.strong.cap / 2, self._title, t.text)
        baseline = 1.5 * row + small.cap / 2
        small.say(painter, logical, baseline, LOGICAL, t.secondary, before=1)
        small.say(painter, physical, baseline, PHYSICAL, t.secondary, before=1)
        small.say(painter, left, baseline, FILLED, t.secondary)

    def _line(self, painter: QPainter, line: Line, box: QRectF, columns: tuple[float, float, float, float]) -> None:
        t, own, face = theme.current(), theme.request_color(self._request), self.face
        logical, physical, left, words = columns
        baseline = box.center().y() + face.cap / 2
        if line.block == HEADING:
            self.small.say(painter, 0, baseline, line.text, t.secondary)
            return
        if line.block == self._pointed:
            with inked(painter, t.hover):
                painter.drawRoundedRect(box.adjusted(0, 1, 0, -1), theme.px(4), theme.px(4))
        face.say(painter, logical, baseline, digits(f"{line.place:,}"), t.text, before=1)
        face.say(painter, physical, baseline, digits(f"{line.block:,}"), t.text, before=1)
        start, wing = QPointF(logical + theme.px(8), box.center().y()), theme.px(3)
        end = start + QPointF(theme.px(10), 0)
        painter.setPen(QPen(t.faint, theme.stroke()))
        for tail in (start, end - QPointF(wing, wing), end - QPointF(wing, -wing)):
            painter.drawLine(tail, end)
        high = theme.px(8)
        bar = QRectF(left, box.center().y() - high / 2, max(theme.px(16), words - left - theme.px(10)), high)
        painter.fillRect(bar, theme.over(t.hairline, t.panel))
        painter.fillRect(QRectF(bar.left(), bar.top(), bar.width() * line.share, high), own)
        face.say(painter, words, baseline, line.text, t.secondary)
        if line.references > 1:
            face.say(painter, words + face.width(f"{line.text} "), baseline, f"×{line.references}", t.text)

    # -- the person -----------------------------------------------------------------------------------------------

    def mousePressEvent(self, event: QMouseEvent) -> None:
        row = theme.px(ROW)
        if event.position().y() >= HEAD * row:
            self._choose(int(event.position().y() + self.verticalScrollBar().value()) // row - HEAD)

    def _choose(self, index: int) -> None:
        if 0 <= index < len(self.lines) and self.lines[index].block != HEADING:
            self.block_chosen.emit(self.lines[index].block)
            row = theme.px(ROW)
            bar, height = self.verticalScrollBar(), self.viewport().height()
            bar.setValue(min(max(bar.value(), (index + 1 + HEAD) * row - height), index * row))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(event.key()))
        if step is None:
            super().keyPressEvent(event)
            return
        at = next((i for i, line in enumerate(self.lines) if line.block == self._pointed >= 0), -1) + step
        while 0 <= at < len(self.lines) and self.lines[at].block == HEADING:
            at += step
        self._choose(at)
