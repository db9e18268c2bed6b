"""The requests of a trace in rows that can be sorted and filtered, as they stood at the moment on show."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QModelIndex

from app.language import tr
from app.playback.bridge import Bridge
from app.ui.tables.columns import UP, Column, SortedModel
from app.words import duration, number, request_title, state_rank, state_words
from engine.trace import RequestView, request_metrics

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

REQUEST, PROMPT, STATE, REASON = 0, 1, 2, 9  # places of columns


def reason(view: RequestView) -> str:
    return view.error or (view.reason.value if view.reason is not None else "")


def _figure(
    title: str, width: int, value: Callable[[RequestView], float | None], words: Callable[[float], str], tip: str
) -> Column[RequestView]:
    def said(view: RequestView) -> str:
        figure = value(view)
        return words(figure) if figure is not None else ""

    return Column(title, said, value, tip, right=True, width=width)


TPOT = tr("Time per output token = (last − first token) ÷ (tokens − 1)")
COLUMNS: tuple[Column[RequestView], ...] = (
    Column(tr("Request"), lambda v: str(v.request), lambda v: v.request, tr("Number of the request"), width=76),
    Column(tr("Prompt"), request_title, request_title, tr("Its label, or what was asked"), width=260),
    Column(tr("State"), state_words, state_rank, tr("What it does now"), width=116),
    _figure(tr("In"), 52, lambda v: len(v.prompt_ids), "{:,}".format, tr("Tokens of the prompt")),
    _figure(tr("Out"), 52, lambda v: len(v.tokens), "{:,}".format, tr("Tokens given so far")),
    _figure("TTFT", 68, lambda v: v.ttft, duration, tr("Time to first token = first token − submit")),
    _figure("TPOT", 68, lambda v: request_metrics(v).tpot, duration, TPOT),
    _figure(tr("tok/s"), 60, lambda v: v.tokens_per_second, number, tr("(tokens − 1) ÷ (last − first token)")),
    _figure("E2E", 68, lambda v: request_metrics(v).e2e, duration, tr("End-to-end latency = last token − submit")),
    Column(tr("Reason"), reason, reason, tr("Why it ended"), width=112),
)


class RequestModel(SortedModel[RequestView]):
    """Rows are requests in the order and choice of `sort` and `filter`, as they stood at the moment on show."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(COLUMNS)
        self.bridge = bridge
        self._then: dict[int, RequestView] = {}  # worked out for the moment on show, where that is in the past
        bridge.scope.moved.connect(self._then.clear)
        self._words = ""

    def row_of(self, key: int) -> RequestView | None:
        """A request as it stood at the moment on show; None where it had not been submitted."""
        if self.bridge.scope.following:
            return self.bridge.requests.get(key)
        view = self._then.get(key) or self.bridge.shown.get(key)
        if view is not None:
            self._then[key] = view
        return view

    def tip(self, row: RequestView, column: int) -> str:
        return "" if COLUMNS[column].right else COLUMNS[column].words(row)

    def said(self, row: RequestView, column: int) -> str:
        return f"{COLUMNS[column].title} {COLUMNS[column].words(row)}"

    def filter(self, words: str) -> None:
        """Keeps the requests whose number, prompt, adapter, state or reason contain every one of these words."""
        self._words = words
        self.arrange()

    @property
    def moves(self) -> bool:
        """Whether rows may come, go or change places as requests go on."""
        return bool(self._words) or self.by != REQUEST or self.direction is UP

    def append(self, requests: list[int]) -> None:
        """New requests, at the end until they are arranged; one signal for all."""
        shown = [r for r in requests if self._kept(r)]
        if shown:
            self.beginInsertRows(QModelIndex(), len(self.order), len(self.order) + len(shown) - 1)
            self.order += shown
            self.endInsertRows()

    def _kept(self, request: int) -> bool:
        view = self.row_of(request) if self._words else None
        if view is None:
            return not self._words
        told = str(request), request_title(view), view.params.adapter, state_words(view), reason(view)
        cells = " ".join(told).casefold()
        return all(word in cells for word in self._words.casefold().split())

    def keys(self) -> list[int]:
        return [r for r in self.bridge.shown if self._kept(r)]

    def value(self, key: int) -> SupportsRichComparison | None:
        value = super().value(key)
        return None if value is None else (value, key)

    def arranged(self) -> list[int]:
        if self.by == REQUEST:  # without a look at any of them
            return sorted(self.keys(), reverse=self.direction is UP)
        return super().arranged()
