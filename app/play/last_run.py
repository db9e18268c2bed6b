"""The measures of the last requests that ran, from the first one's submission until none was left."""

from PySide6.QtCore import QObject

from app.playback.bridge import Bridge
from app.session.session import Session
from engine import Trace, measure


class LastRun(QObject):
    """Reckons them off the window's thread when the last request is over, and gives them to the bridge."""

    def __init__(self, session: Session, bridge: Bridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session, self._bridge = session, bridge
        bridge.busy_changed.connect(self._on_busy)

    def _on_busy(self, busy: bool) -> None:
        bridge = self._bridge
        bridge.last_run = None
        if not busy and bridge.requests and not self._session.closing:
            self._session.start(self._reckon(bridge.trace, bridge.begun))

    async def _reckon(self, trace: Trace, begun: int) -> None:
        found = await self._session.off_thread(lambda: measure(trace, first=begun))
        bridge = self._bridge
        if (bridge.trace, bridge.begun, bridge.busy) == (trace, begun, False):
            bridge.last_run = found
