"""The requests of a trace as a table: sortable, filtered, refreshed a few times a second as a whole."""

from itertools import accumulate
from time import perf_counter

from PySide6.QtCore import QItemSelection, QItemSelectionModel, QModelIndex, QPointF, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QPainter, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QWidget

from app.language import tr, trn
from app.play.requests import model as places
from app.play.requests.model import COLUMNS, PROMPT, REQUEST, RequestModel
from app.play.states import state_color
from app.playback.bridge import Bridge
from app.ui.controls import line_edit
from app.ui.layout.boxes import column, row
from app.ui.line import Line
from app.ui.look import theme
from app.ui.look.font_face import Face, FontFace
from app.ui.tables.columns import DOWN
from app.ui.tables.view import PAD, Cells, TableView
from app.words import duration
from engine.trace import Ended, Record, RequestView, Step, Submitted

REFRESH_MS = 200
LINE, NARROWEST = 26, 104  # pixels of the design: a row, a column of prompts


class RequestCells(Cells[RequestView]):
    """A dot before the number, the state in its colour."""

    text, strong = Face(12.5), Face(12.5, 600)

    def baseline(self, box: QRectF, face: FontFace) -> float:
        return face.baseline(box.top(), box.height())

    def draw(self, painter: QPainter, box: QRectF, row: RequestView, column: int) -> None:
        t, px, words = theme.current(), theme.px, COLUMNS[column].words(row)
        match column:
            case places.REQUEST:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(theme.request_color(row.request))
                middle = box.top() + (box.height() - 1) // 2 + 0.5
                painter.drawEllipse(QPointF(box.left() + px(PAD) + px(4), middle), px(4), px(4))
                self.say_left(painter, box.adjusted(px(14), 0, 0, 0), words, self.strong, t.text)
            case places.PROMPT:  # those from one template differ near their end
                self.say_left(painter, box, words, self.text, t.text, mode=Qt.TextElideMode.ElideMiddle)
            case places.STATE:
                self.say_left(painter, box, words, self.text, state_color(row, t))
            case places.REASON:
                self.say_left(painter, box, words, self.text, t.bad if row.error else t.secondary)
            case _:
                self.say_right(painter, box, words, self.text, t.text)


class _View(TableView):
    def resizeEvent(self, event: QResizeEvent) -> None:
        """The prompts take what room the other columns leave; where not all of these have room, those that have are
        whole and the others are to be scrolled to."""
        super().resizeEvent(event)
        header, room = self.horizontalHeader(), self.viewport().width()
        whole = list(
            accumulate(self.columnWidth(i) for i in map(header.logicalIndex, range(len(COLUMNS))) if i != PROMPT)
        )
        taken = max((wide for wide in whole if wide + theme.px(NARROWEST) <= room), default=room)
        self.setColumnWidth(PROMPT, max(theme.px(NARROWEST), room - taken))

    def copied(self) -> str:
        """The selected rows with their titles, tab-separated."""
        model = self.model()
        lines = ["\t".join(column.title for column in COLUMNS)]
        for place in self.picked():
            cells = (str(model.index(place, c).data() or "") for c in range(len(COLUMNS)))
            lines.append("\t".join(" ".join(cell.split()) for cell in cells))
        return "\n".join(lines) + "\n"


class RequestTable(QWidget):
    """Every request of the bridge's trace as it stood at the scope's moment."""

    request_opened = Signal(int)  # its transcript is wanted

    def __init__(self, bridge: Bridge, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("request_table")
        self.bridge = bridge
        self.model = RequestModel(bridge)
        self.model.setParent(self)
        self.search = line_edit("request_filter", tr("Filter requests"), tr("Filter by prompt, state or reason"))
        self.search.setClearButtonEnabled(True)
        self.count = Line("request_count", Qt.AlignmentFlag.AlignRight)
        self.table = _View("requests", tr("Requests"), self.model, RequestCells(self.model), LINE)
        self.table.setVerticalScrollMode(TableView.ScrollMode.ScrollPerItem)
        self.table.setSortingEnabled(True)
        self.header = self.table.horizontalHeader()
        self.header.setSectionsMovable(True)
        self.header.setSortIndicator(REQUEST, DOWN)
        self.setLayout(column(row((self.search, 1), self.count), (self.table, 1)))
        self._new: list[int] = []
        self._stale = self._telling = self._moved = False
        self._rested = 0.0  # arranging costs at most a twentieth of the time
        self._timer = QTimer(self, interval=REFRESH_MS)
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
            if request in self.model.order:
                index = self.model.index(self.model.order.index(request), 0)
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
        return self.model.order[rows[0].row()] if rows else None

    def _on_moved(self) -> None:
        self._moved = True
        self.table.viewport().update()

    def _on_records(self, records: list[Record]) -> None:
        if self.bridge.scope.following:  # else the way back to what is live arranges all
            self._new += [record.request for record in records if isinstance(record, Submitted)]
            self._stale = self._stale or any(isinstance(record, Step | Ended) for record in records)

    def _on_reset(self, trace: object) -> None:
        self._new.clear()
        self.model.reset()
        self._tell_count()

    def _on_refresh(self) -> None:
        if not (self._stale or self._new or self._moved):
            return
        began = perf_counter()
        if self._moved:
            self._arrange_moment()
        else:
            self.model.append(self._new)
            if self.model.moves and began >= self._rested:
                self.model.arrange()
                ended = perf_counter()
                self._rested = ended + 20 * (ended - began)
        self._new, self._stale, self._moved = [], False, False
        self.model.tell()
        self._tell_count()

    def _arrange_moment(self) -> None:
        """The rows of another moment. A selected request that had not been submitted stays selected elsewhere."""
        telling, self._telling = self._telling, True
        try:
            self.model.arrange()
            request = self.bridge.scope.request
            if self.selected is None and request in self.model.order:
                self.table.selectRow(self.model.order.index(request))
        finally:
            self._telling = telling

    def _on_filter(self, words: str) -> None:
        self.model.filter(words)
        self._tell_count()

    def _tell_count(self) -> None:
        shown, total, scope = len(self.model.order), len(self.bridge.shown), self.bridge.scope
        words = trn("{count:,} request", "{count:,} requests", total)
        if shown != total:
            words = trn("{shown:,} of {count:,} request", "{shown:,} of {count:,} requests", total, shown=shown)
        if not scope.following:
            then = tr("at {time}", time=duration(max(0.0, scope.moment - scope.origin)))
            words = f"{then}  ·  {words}"
        self.count.say(words)

    def _on_selection(self, chosen: QItemSelection, given_up: QItemSelection) -> None:
        if not self._telling:
            request = self.selected
            self.bridge.scope.select(-1 if request is None else request)

    def _on_opened(self, index: QModelIndex) -> None:
        self.request_opened.emit(self.model.order[index.row()])

    def _on_theme(self) -> None:
        self.count.set_width(theme.px(170))
        for i, each in enumerate(COLUMNS):
            self.table.setColumnWidth(i, theme.px(each.width))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._on_refresh()
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        self._timer.stop()
        super().hideEvent(event)
