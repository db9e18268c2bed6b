"""The way into the tour, on a Play page that has no streams."""

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject

from app.language import tr
from app.play.streams.cards import StreamCards
from app.playback.bridge import Bridge
from app.ui.controls import button
from app.ui.look import theme

TIP = tr("How inference works, in short scenes of real runs: from the KV cache to speculation")
BELOW, FOOT = 11, 8  # pixels of the design: how far below the words it stands, and the least room under it


class TourCard(QObject):
    """A button below the words of an empty wall of streams; `act` follows a click."""

    def __init__(self, cards: StreamCards, bridge: Bridge, act: Callable[[], object]) -> None:
        super().__init__(cards)
        self._cards, self._bridge = cards, bridge
        self.button = button("take_tour", tr("Take the tour"), lambda checked=False: act(), tip=TIP)
        self.button.setParent(cards)
        cards.installEventFilter(self)
        bridge.records_arrived.connect(self.place)
        bridge.trace_reset.connect(self.place)
        theme.changes.theme_changed.connect(self.place)
        self.place()

    def place(self, *changed: object) -> None:
        """Where there is room for it, and no stream."""
        room, size = self._cards.size(), self.button.sizeHint()
        top = (room.height() + self._cards.empty_height) // 2 + theme.px(BELOW)
        fits = size.width() <= room.width() and top + size.height() + theme.px(FOOT) <= room.height()
        self.button.setVisible(fits and not self._bridge.requests)
        self.button.setGeometry((room.width() - size.width()) // 2, top, size.width(), size.height())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize:
            self.place()
        return super().eventFilter(watched, event)
