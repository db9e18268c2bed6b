"""The last words of a few requests of a lane on one line, each behind the dot of its colour. A frame is O(in sight)."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.ui import theme
from app.ui.font_face import FontFace
from engine.trace import RequestView, State

COLUMN = 250
TAIL = 80  # characters that can be seen at most
RUNNING = (State.DECODE, State.PREFILL)


class StreamStrip(QWidget):
    """A request keeps its place until it is over; then the next one that runs takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("stream_strip")
        self.setAccessibleName("Last words of running requests")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.shown: list[int] = []
        self._requests: dict[int, RequestView] = {}
        self._running: dict[int, None] = {}  # in the order in which they began
        self.restyle()

    def restyle(self) -> None:
        self._face = FontFace(theme.mono(11.5))
        self.setFixedHeight(round(self._face.height) + theme.px(4))
        self.update()

    def clear(self, requests: dict[int, RequestView]) -> None:
        """Another trace, or the same from its start: its requests will be in `requests`."""
        self._requests, self.shown = requests, []
        self._running.clear()
        self.update()

    def touch(self, requests: set[int]) -> None:
        """These requests have new words or another state."""
        for request in requests:
            if self._requests[request].state in RUNNING:
                self._running.setdefault(request)
            else:
                self._running.pop(request, None)
        waiting = iter([r for r in self._running if r not in self.shown])
        for i, request in enumerate(self.shown):
            if request not in self._running:
                self.shown[i] = next(waiting, request)
        while len(self.shown) < self._columns and (new := next(waiting, None)) is not None:
            self.shown.append(new)
        self.update()

    @property
    def _columns(self) -> int:
        return max(1, self.width() // theme.px(COLUMN))

    def sizeHint(self) -> QSize:
        return QSize(theme.px(COLUMN), self.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(80), self.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        t, px = theme.current(), theme.px
        painter.setFont(self._face.font)
        wide = self.width() / self._columns
        baseline = (self.height() - self._face.height) / 2 + self._face.ascent
        for i, request in enumerate(self.shown[: self._columns]):
            view = self._requests[request]
            x, over = i * wide, request not in self._running
            painter.setPen(Qt.PenStyle.NoPen)
            color = theme.request_color(request)
            painter.setBrush(color if not over else t.edge)
            painter.drawEllipse(QPointF(x + px(4), self.height() / 2), px(3), px(3))
            words = " ".join("".join(view.parts[-TAIL:])[-TAIL:].split())
            painter.setPen(t.faint if over else t.secondary)
            room = wide - px(24)
            text = self._face.cut(words or "…", room, Qt.TextElideMode.ElideLeft)
            self._face.draw(painter, x + px(12), baseline, text)
        painter.end()
