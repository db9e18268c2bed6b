"""The requests of a trace in rows that can be sorted and filtered, as they stood at the moment on show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt

from app.playback.bridge import Bridge
from app.words import duration, number, request_title, state_rank, state_words
from engine.trace import RequestView, request_metrics

PROMPT = 1  # the place of the column that takes what room is left
Index = QModelIndex | QPersistentModelIndex
Sortable = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """`value` is what sorts (None comes last), `words` what is shown and copied."""

    title: str
    width: int
    value: Callable[[RequestView], Any]
    words: Callable[[RequestView], str]
    tip: str
    right: bool = True


def _seconds(pick: Callable[[RequestView], float | None]) -> Callable[[RequestView], str]:
    def words(view: RequestView) -> str:
        value = pick(view)
        return duration(value) if value is not None else ""

    return words


def _tpot(view: RequestView) -> float | None:
    return request_metrics(view).tpot


def _e2e(view: RequestView) -> float | None:
    return request_metrics(view).e2e


def _rate(view: RequestView) -> str:
    value = view.tokens_per_second
    return number(value) if value is not None else ""


def reason(view: RequestView) -> str:
    return view.error or (view.reason.value if view.reason is not None else "")


COLUMNS = (
    Column("Request", 76, lambda v: v.request, lambda v: str(v.request), "Number of the request", right=False),
    Column("Prompt", 260, request_title, request_title, "Its label, or what was asked", right=False),
    Column("State", 116, state_rank, state_words, "What it does now", right=False),
    Column("In", 52, lambda v: len(v.prompt_ids), lambda v: f"{len(v.prompt_ids):,}", "Tokens of the prompt"),
    Column("Out", 52, lambda v: len(v.tokens), lambda v: f"{len(v.tokens):,}", "Tokens given so far"),
    Column("TTFT", 68, lambda v: v.ttft, _seconds(lambda v: v.ttft), "Time to first token = first token − submit"),
    Column("TPOT", 68, _tpot, _seconds(_tpot), "Time per output token = (last − first token) ÷ (tokens − 1)"),
    Column("tok/s", 60, lambda v: v.tokens_per_second, _rate, "(tokens − 1) ÷ (last − first token)"),
    Column("E2E", 68, _e2e, _seconds(_e2e), "End-to-end latency = last token − submit"),
    Column("Reason", 112, reason, reason, "Why it ended", right=False),
)


class RequestModel(QAbstractTableModel):
    """Rows are request ids in the order and choice of `sort` and `filter`; cells read the requests as they stood at the
    moment on show."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self.bridge = bridge
        self.rows: list[int] = []
        self._then: dict[int, RequestView] = {}  # worked out for a moment in the past
        self._words = ""
        self._column, self._order = 0, Qt.SortOrder.AscendingOrder

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(COLUMNS)

    def view(self, row: int) -> RequestView | None:
        return self.view_of(self.rows[row]) if 0 <= row < len(self.rows) else None

    def view_of(self, request: int) -> RequestView | None:
        """A request as it stood at the moment on show; None where it had not been submitted."""
        if self.bridge.scope.following:
            return self.bridge.requests.get(request)
        view = self._then.get(request)
        if view is None:
            view = self.bridge.shown.get(request)
            if view is not None:
                self._then[request] = view
        return view

    def forget_moment(self) -> None:
        """Another moment is on show."""
        self._then.clear()

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
        view = self.view_of(request)
        if view is None:
            return False
        cells = " ".join((str(request), request_title(view), state_words(view), reason(view))).casefold()
        return all(word in cells for word in self._words.casefold().split())

    def _key(self, request: int) -> Sortable:
        view = self.view_of(request)
        value = COLUMNS[self._column].value(view) if view is not None else None
        return () if value is None else (value,)

    def _arranged(self) -> list[int]:
        ids = [r for r in self.bridge.shown if self._kept(r)]
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
