"""The last words of a few requests of a lane on one line, each behind the dot of its colour. A frame is O(in sight)."""

from collections.abc import Callable, Mapping

from PySide6.QtCore import QPointF, QRect, QSize, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QSizePolicy

from app.language import tr
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted
from engine.trace import RequestView

COLUMN = 250
TAIL = 80  # characters that can be seen at most
END, BEGIN, END_AT_ONCE = range(3)  # of one moment, in this order: who begins takes the place of who ended


class StreamStrip(Painted):
    """A request keeps its place until it is over; then the next one that runs takes it."""

    face = Face(11.5, mono=True)

    def __init__(self, color_of: Callable[[int], QColor] = theme.request_color) -> None:
        super().__init__("stream_strip", tr("Last words of running requests"))
        self.color_of = color_of
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.shown: list[int] = []
        self._requests: Mapping[int, RequestView] = {}
        self._running: dict[int, None] = {}  # in the order in which they began
        self._begun = set[int]()
        self.restyle()

    def restyle(self) -> None:
        self.setFixedHeight(round(self.face.height) + theme.px(4))
        super().restyle()

    def clear(self, requests: Mapping[int, RequestView]) -> None:
        """Another trace, or the same from its start: its requests will be in `requests`."""
        self._requests, self.shown = requests, []
        self._running.clear()
        self._begun.clear()
        self.update()

    def touch(self, requests: set[int]) -> None:
        """These requests have new words or another state. What began and ended meanwhile had its place in its time."""
        events = []
        for request in requests:
            view = self._requests[request]
            begun, ended = view.samples[0].begun, view.ended
            if begun is None:
                continue
            if new := request not in self._begun:
                self._begun.add(request)
                events.append((begun, BEGIN, request))
            if ended is not None and (new or request in self._running):
                events.append((ended, END if ended > begun else END_AT_ONCE, request))
        for _, event, request in sorted(events):
            if event == BEGIN:
                self._running[request] = None
            else:
                del self._running[request]
            self._fill()
        self.update()

    def _fill(self) -> None:
        """Gives the places of those that are over, and free ones, to those that run and have none."""
        waiting = iter([r for r in self._running if r not in self.shown])
        for i, request in enumerate(self.shown):
            if request not in self._running:
                self.shown[i] = next(waiting, request)
        while len(self.shown) < self._columns and (new := next(waiting, None)) is not None:
            self.shown.append(new)

    @property
    def _columns(self) -> int:
        return max(1, self.width() // theme.px(COLUMN))

    def sizeHint(self) -> QSize:
        return QSize(theme.px(COLUMN), self.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(80), self.height())

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t, px, face = theme.current(), theme.px, self.face
        wide = self.width() / self._columns
        baseline = (self.height() - face.height) / 2 + face.ascent
        for i, request in enumerate(self.shown[: self._columns]):
            view = self._requests[request]
            x, over = i * wide, request not in self._running
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(t.edge if over else self.color_of(request))
            painter.drawEllipse(QPointF(x + px(4), self.height() / 2), px(3), px(3))
            words = " ".join("".join(view.parts[-TAIL:])[-TAIL:].split())
            text = face.last_words(words or "…", wide - px(24))
            face.say(painter, x + px(12), baseline, text, t.faint if over else t.secondary)
