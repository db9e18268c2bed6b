"""The requests of a trace as a table: sortable, filtered, refreshed a few times a second as a whole."""

from __future__ import annotations

from time import perf_counter

from PySide6.QtCore import (
    QItemSelection,
    QItemSelectionModel,
    QModelIndex,
    QPointF,
    QRect,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import QGuiApplication, QHideEvent, QKeyEvent, QKeySequence, QPainter, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QHeaderView,
    QLineEdit,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.play.requests.model import COLUMNS, PROMPT, Index, RequestModel
from app.play.states import state_color
from app.playback.bridge import Bridge
from app.ui import theme
from app.ui.font_face import FontFace
from app.ui.line import Line
from app.words import duration
from engine.trace import Ended, Record, Step, Submitted

REFRESH_MS = 200
NARROWEST = 160  # a column of prompts


class RequestCells(QStyledItemDelegate):
    """Paints a cell straight from its request: a dot before the number, the state in its colour."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.restyle()

    def restyle(self) -> None:
        """Takes up the theme's fonts at the current zoom."""
        self._plain, self._strong = map(FontFace, (theme.ui(12.5), theme.ui(12.5, 600)))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        model = index.model()
        assert isinstance(model, RequestModel)
        view = model.view(index.row())
        if view is None:
            return
        t, px = theme.current(), theme.px
        rect: QRect = option.rect
        selected = bool(option.state & QStyle.StateFlag.State_Selected)
        if selected:
            painter.fillRect(rect, t.hover)
        column = COLUMNS[index.column()]
        box = rect.adjusted(px(6), 0, -px(6), 0)
        color = t.text
        match index.column():
            case 0:
                painter.save()
                painter.setRenderHint(QPainter.RenderHint.Antialiasing)
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(theme.request_color(view.request))
                painter.drawEllipse(QPointF(box.left() + px(4), rect.center().y() + 0.5), px(4), px(4))
                painter.restore()
                box.adjust(px(14), 0, 0, 0)
            case 2:
                color = state_color(view, t)
            case 9:
                color = t.bad if view.error else t.secondary
            case _:
                pass
        face = self._strong if index.column() == 0 else self._plain
        text = column.words(view)
        if not column.right:
            # prompts from one template differ near their end
            middle = index.column() == PROMPT
            text = face.cut(text, box.width(), Qt.TextElideMode.ElideMiddle if middle else Qt.TextElideMode.ElideRight)
        x = box.right() + 1 - face.width(text) if column.right else box.left()
        painter.setFont(face.font)
        painter.setPen(color)
        face.draw(painter, x, box.top() + (box.height() + face.ascent - face.descent) / 2, text)


class _Table(QTableView):
    def resizeEvent(self, event: QResizeEvent) -> None:
        """The prompts take what room the other columns leave, within reason."""
        super().resizeEvent(event)
        others = sum(self.columnWidth(i) for i in range(len(COLUMNS)) if i != PROMPT)
        self.setColumnWidth(PROMPT, max(theme.px(NARROWEST), self.viewport().width() - others))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            QGuiApplication.clipboard().setText(self.selected_tsv())
        else:
            super().keyPressEvent(event)

    def selected_tsv(self) -> str:
        """The selected rows with their titles, tab-separated."""
        rows = sorted({index.row() for index in self.selectionModel().selectedRows()})
        model = self.model()
        lines = ["\t".join(column.title for column in COLUMNS)]
        for row in rows:
            cells = (str(model.index(row, c).data() or "") for c in range(len(COLUMNS)))
            lines.append("\t".join(" ".join(cell.split()) for cell in cells))
        return "\n".join(lines) + "\n"


class RequestTable(QWidget):
    """Every request of the bridge's trace as it stood at the scope's moment.

    `request_selected` gives -1 when nothing is selected.
    """

    request_selected = Signal(int)
    request_opened = Signal(int)  # its transcript is wanted

    def __init__(self, bridge: Bridge, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("request_table")
        self.bridge = bridge
        self.model = RequestModel(bridge)
        self.model.setParent(self)
        self.search = QLineEdit()
        self.search.setObjectName("request_filter")
        self.search.setPlaceholderText("Filter by prompt, state or reason")
        self.search.setAccessibleName("Filter requests")
        self.search.setClearButtonEnabled(True)
        self.count = Line("request_count", Qt.AlignmentFlag.AlignRight)
        self.table = _Table()
        self.table.setObjectName("requests")
        self.table.setAccessibleName("Requests")
        self.table.setModel(self.model)
        self._cells = RequestCells(self.table)
        self.table.setItemDelegate(self._cells)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.table.setShowGrid(False)
        self.table.setWordWrap(False)
        self.table.setSortingEnabled(True)
        self.table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header = self.table.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionsMovable(True)
        header.setSortIndicator(0, Qt.SortOrder.AscendingOrder)
        top = QHBoxLayout()
        top.addWidget(self.search, 1)
        top.addWidget(self.count)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(top)
        column.addWidget(self.table, 1)
        self._new: list[int] = []
        self._stale = self._telling = self._moved = False
        self._rested = 0.0  # arranging costs at most a twentieth of the time
        self._timer = QTimer(self)
        self._timer.setInterval(REFRESH_MS)
        self._timer.timeout.connect(self._on_refresh)
        self.search.textChanged.connect(self._on_filter)
        self.table.selectionModel().selectionChanged.connect(self._on_selection)
        self.table.doubleClicked.connect(self._on_opened)
        self.table.activated.connect(self._on_opened)
        bridge.records_arrived.connect(self._on_records)
        bridge.trace_reset.connect(self._on_reset)
        bridge.scope.moved.connect(self._on_moved)
        bridge.scope.selected.connect(self.select)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()
        self._on_reset(None)

    def select(self, request: int | None) -> None:
        """Selects a request, as another panel has done; None or -1 selects none."""
        if request == self.selected:
            return
        self._telling = True
        try:
            self._on_refresh()
            if request in self.model.rows:
                index = self.model.index(self.model.rows.index(request), 0)
                flags = QItemSelectionModel.SelectionFlag
                self.table.selectionModel().setCurrentIndex(index, flags.ClearAndSelect | flags.Rows)
                self.table.scrollTo(index)
            else:
                self.table.clearSelection()
        finally:
            self._telling = False

    @property
    def selected(self) -> int | None:
        rows = self.table.selectionModel().selectedRows()
        return self.model.rows[rows[0].row()] if rows else None

    def save_columns(self) -> bytes:
        """Widths, order and sorting of the columns, to be kept between sessions."""
        return bytes(self.table.horizontalHeader().saveState().data())

    def restore_columns(self, state: bytes) -> None:
        self.table.horizontalHeader().restoreState(state)

    def _on_moved(self) -> None:
        self._moved = True
        self.model.forget_moment()
        self.table.viewport().update()

    def _on_records(self, records: list[Record]) -> None:
        if not self.bridge.scope.following:
            return  # the way back to what is live arranges all
        for record in records:
            if isinstance(record, Submitted):
                self._new.append(record.request)
            elif isinstance(record, Step | Ended):
                self._stale = True

    def _on_reset(self, trace: object) -> None:
        self._new.clear()
        self.model.reset()
        self._tell_count()

    def _on_refresh(self) -> None:
        if not (self._stale or self._new or self._moved):
            return
        if self._new and not self._moved:
            self.model.append(self._new)
        self._new = []
        began = perf_counter()
        if self._moved:
            self._moved = False
            self._arrange_moment()
        elif self.model.moves and began >= self._rested:
            self.model.arrange()
            ended = perf_counter()
            self._rested = ended + 20 * (ended - began)
        self._stale = False
        self.model.tell()
        self._tell_count()

    def _arrange_moment(self) -> None:
        """The rows of another moment. A selected request that had not been submitted stays selected elsewhere."""
        telling, self._telling = self._telling, True
        try:
            self.model.arrange()
            request = self.bridge.scope.request
            if self.selected is None and request in self.model.rows:
                self.table.selectRow(self.model.rows.index(request))
        finally:
            self._telling = telling

    def _on_filter(self, words: str) -> None:
        self.model.filter(words)
        self._tell_count()

    def _tell_count(self) -> None:
        shown, total, scope = len(self.model.rows), len(self.bridge.shown), self.bridge.scope
        noun = "request" if total == 1 else "requests"
        words = f"{total:,} {noun}" if shown == total else f"{shown:,} of {total:,} {noun}"
        if not scope.following:
            words = f"at {duration(max(0.0, scope.moment - scope.origin))}  ·  {words}"
        self.count.say(words)

    def _on_selection(self, chosen: QItemSelection, given_up: QItemSelection) -> None:
        if not self._telling:
            request = self.selected
            wanted = -1 if request is None else request
            self.request_selected.emit(wanted)
            self.bridge.scope.select(wanted)

    def _on_opened(self, index: QModelIndex) -> None:
        if 0 <= index.row() < len(self.model.rows):
            self.request_opened.emit(self.model.rows[index.row()])

    def _on_theme(self) -> None:
        px = theme.px
        self.count.set_width(px(170))
        self._cells.restyle()
        self.table.verticalHeader().setDefaultSectionSize(px(26))
        self.table.verticalHeader().setMinimumSectionSize(px(20))
        zoom = theme.zoom()
        for i, column in enumerate(COLUMNS):
            self.table.setColumnWidth(i, round(column.width * zoom))
        self.table.viewport().update()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._on_refresh()
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        self._timer.stop()
        super().hideEvent(event)
