"""The requests of a trace as a table: sortable, filtered, refreshed a few times a second as a whole."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QItemSelection,
    QItemSelectionModel,
    QModelIndex,
    QPersistentModelIndex,
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

from app import theme
from app.bridge import Bridge
from app.panels.ink import Ink
from app.panels.request_columns import COLUMNS, PROMPT, reason
from app.panels.request_words import state_color, state_words, title
from app.widgets.labels import label
from engine import Ended, Record, RequestView, Step, Submitted

REFRESH_MS = 200
NARROWEST = 160  # a column of prompts
Index = QModelIndex | QPersistentModelIndex
Sortable = tuple[Any, ...]


class RequestModel(QAbstractTableModel):
    """Rows are request ids in the order and choice of `sort` and `filter`; cells read the bridge's views."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self.bridge = bridge
        self.rows: list[int] = []
        self._words = ""
        self._column, self._order = 0, Qt.SortOrder.AscendingOrder

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(COLUMNS)

    def view(self, row: int) -> RequestView | None:
        return self.bridge.requests.get(self.rows[row]) if 0 <= row < len(self.rows) else None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        view = self.view(index.row())
        if view is None:
            return None
        column = COLUMNS[index.column()]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return column.words(view)
            case Qt.ItemDataRole.ToolTipRole if not column.right:
                return column.words(view)
            case Qt.ItemDataRole.TextAlignmentRole:
                side = Qt.AlignmentFlag.AlignRight if column.right else Qt.AlignmentFlag.AlignLeft
                return side | Qt.AlignmentFlag.AlignVCenter
            case Qt.ItemDataRole.AccessibleTextRole:
                return f"{column.title} {column.words(view)}"
            case _:
                return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation is not Qt.Orientation.Horizontal:
            return None
        column = COLUMNS[section]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return column.title
            case Qt.ItemDataRole.ToolTipRole:
                return column.tip
            case Qt.ItemDataRole.TextAlignmentRole:
                side = Qt.AlignmentFlag.AlignRight if column.right else Qt.AlignmentFlag.AlignLeft
                return side | Qt.AlignmentFlag.AlignVCenter
            case _:
                return None

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        self._column, self._order = column, order
        self.arrange()

    def filter(self, words: str) -> None:
        """Keeps the requests whose number, prompt, state or reason contain every one of these words."""
        self._words = words
        self.arrange()

    @property
    def moves(self) -> bool:
        """Whether rows may come, go or change places as requests go on."""
        return bool(self._words) or self._column != 0 or self._order is not Qt.SortOrder.AscendingOrder

    def append(self, requests: list[int]) -> None:
        """New requests, at the end until they are arranged; one signal for all."""
        shown = [r for r in requests if self._kept(r)]
        if shown:
            self.beginInsertRows(QModelIndex(), len(self.rows), len(self.rows) + len(shown) - 1)
            self.rows += shown
            self.endInsertRows()

    def _kept(self, request: int) -> bool:
        if not self._words:
            return True
        view = self.bridge.requests[request]
        cells = " ".join((str(request), title(view), state_words(view), reason(view))).casefold()
        return all(word in cells for word in self._words.casefold().split())

    def _key(self, request: int) -> Sortable:
        value = COLUMNS[self._column].value(self.bridge.requests[request])
        return () if value is None else (value,)

    def _arranged(self) -> list[int]:
        ids = [r for r in self.bridge.requests if self._kept(r)]
        if self._column == 0:
            return sorted(ids, reverse=self._order is Qt.SortOrder.DescendingOrder)
        keys = {r: self._key(r) for r in ids}
        with_value = sorted((r for r in ids if keys[r]), key=keys.__getitem__)
        if self._order is Qt.SortOrder.DescendingOrder:
            with_value.reverse()
        return with_value + [r for r in ids if not keys[r]]

    def arrange(self) -> None:
        """Filters and sorts anew; nothing happens where the order is the same. Selections follow their requests."""
        rows = self._arranged()
        if rows == self.rows:
            return
        self.layoutAboutToBeChanged.emit()
        places = {request: i for i, request in enumerate(rows)}
        old = self.persistentIndexList()
        moved = [places.get(self.rows[i.row()]) if i.row() < len(self.rows) else None for i in old]
        self.rows = rows
        new = [
            QModelIndex() if place is None else self.index(place, i.column())
            for i, place in zip(old, moved, strict=True)
        ]
        self.changePersistentIndexList(old, new)
        self.layoutChanged.emit()

    def reset(self) -> None:
        self.beginResetModel()
        self.rows = self._arranged()
        self.endResetModel()

    def tell(self) -> None:
        """One signal for all cells: their requests went on."""
        if self.rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self.rows) - 1, len(COLUMNS) - 1))


class RequestCells(QStyledItemDelegate):
    """Paints a cell straight from its request: a dot before the number, the state in its colour."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.restyle()

    def restyle(self) -> None:
        """Takes up the theme's fonts at the current zoom."""
        self._plain, self._strong = Ink(theme.ui(12.5)), Ink(theme.ui(12.5, 600))

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
        ink = self._strong if index.column() == 0 else self._plain
        text = column.words(view)
        if not column.right:
            # prompts from one template differ near their end
            middle = index.column() == PROMPT
            text = ink.cut(text, box.width(), Qt.TextElideMode.ElideMiddle if middle else Qt.TextElideMode.ElideRight)
        x = box.right() + 1 - ink.width(text) if column.right else box.left()
        painter.setFont(ink.font)
        painter.setPen(color)
        ink.draw(painter, x, box.top() + (box.height() + ink.ascent - ink.descent) / 2, text)


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
    """Every request of the bridge's trace; `request_selected` gives -1 when nothing is selected."""

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
        self.count = label("", "secondary", "request_count")
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
        self._stale = self._telling = False
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
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()
        self._on_reset(None)

    def select(self, request: int | None) -> None:
        """Selects a request, as another panel has done; None or -1 selects none."""
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

    def _on_records(self, records: list[Record]) -> None:
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
        if not (self._stale or self._new):
            return
        if self._new:
            self.model.append(self._new)
            self._new = []
        began = perf_counter()
        if self.model.moves and began >= self._rested:
            self.model.arrange()
            ended = perf_counter()
            self._rested = ended + 20 * (ended - began)
        self._stale = False
        self.model.tell()
        self._tell_count()

    def _on_filter(self, words: str) -> None:
        self.model.filter(words)
        self._tell_count()

    def _tell_count(self) -> None:
        shown, total = len(self.model.rows), len(self.bridge.requests)
        noun = "request" if total == 1 else "requests"
        self.count.setText(f"{total:,} {noun}" if shown == total else f"{shown:,} of {total:,} {noun}")

    def _on_selection(self, chosen: QItemSelection, given_up: QItemSelection) -> None:
        if not self._telling:
            request = self.selected
            self.request_selected.emit(-1 if request is None else request)

    def _on_opened(self, index: QModelIndex) -> None:
        if 0 <= index.row() < len(self.model.rows):
            self.request_opened.emit(self.model.rows[index.row()])

    def _on_theme(self) -> None:
        px = theme.px
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
