"""How the connection to a server is, told when that changes."""

from PySide6.QtCore import QObject, QTimer, Signal

from app.language import tr
from app.session.session import Session
from engine.remote import LinkStatus

GLANCE_MS = 250
LATE = 64  # records behind that are worth a word: half a second of a busy engine


class ServerLink(QObject):
    """Looks at the session's engine a few times a second, while that is a server's."""

    changed = Signal()

    def __init__(self, session: Session, parent: QObject) -> None:
        super().__init__(parent)
        self._session, self._words = session, ""
        self._timer = QTimer(self, interval=GLANCE_MS)
        self._timer.timeout.connect(self._look)
        session.state_changed.connect(self._on_state)

    def stop(self) -> None:
        """The window closes."""
        self._timer.stop()

    def _on_state(self) -> None:
        if self._session.link is not None and not self._session.closing:
            self._timer.start()
        else:
            self._timer.stop()
            self._words = ""

    def _look(self) -> None:
        words = link_words(self._session.link)
        if words != self._words:
            self._words = words
            self.changed.emit()


def link_words(status: LinkStatus | None) -> str:
    """ "in control", "watching, ann has control", "1,204 records behind", "reconnecting"; "" without a server."""
    if status is None:
        return ""
    if not status.connected:
        return tr("connection lost, reconnecting …")
    if status.behind > LATE:
        return tr("{count:,} records behind", count=status.behind)
    if not status.observes:
        return tr("in control")
    return tr("watching, {whose}", whose=control_words(status))


def control_words(status: LinkStatus) -> str:
    """Who has control of the server, where this window has not."""
    if status.holder is None:
        return tr("nobody has control")
    return tr("{key} has control", key=status.holder) if status.holder else tr("another window has control")
