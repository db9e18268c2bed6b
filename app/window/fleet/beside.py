"""The fleet's window beside the main one, while that is connected to a server whose engine is a fleet."""

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app import storage
from app.fleet import FleetSource
from app.session.session import Session
from app.window.fleet.window import FleetWindow
from engine.remote import ServerAddress

OPEN_KEY = "fleet/open"


class FleetBeside(QObject):
    """Opens again with the next fleet where it was left open. It goes with the connection, and with the main window."""

    offered = Signal(bool)  # whether there is a fleet to watch

    def __init__(self, session: Session, parent: QWidget) -> None:
        super().__init__(parent)
        self._session = session
        self.window: FleetWindow | None = None
        self._server: ServerAddress | None = None  # whose fleet it is
        session.state_changed.connect(self.look)

    def look(self) -> None:
        """The session has another engine, or knows more of the one it has."""
        link = self._session.link
        server = self._session.server if link is not None and link.replicas else None
        if server == self._server:
            return
        self.close_down()
        self._server = server
        self.offered.emit(server is not None)
        if server is not None and storage.settings().value(OPEN_KEY, False, bool):
            self.show()

    def show(self) -> None:
        if self._server is None:
            return
        if self.window is None:
            self.window = FleetWindow(FleetSource(self._server))
            self.window.closed.connect(self._on_closed)
        storage.settings().setValue(OPEN_KEY, True)
        self.window.show()
        self.window.raise_()
        self.window.activateWindow()

    def _on_closed(self) -> None:
        """By a person."""
        storage.settings().setValue(OPEN_KEY, False)
        if self.window is not None:
            self.window.deleteLater()
            self.window = None

    def close_down(self) -> None:
        """Whether it was open stays known."""
        if (window := self.window) is not None:
            self.window = None
            window.closed.disconnect(self._on_closed)
            window.close()
            window.deleteLater()
