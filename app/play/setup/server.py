"""Where an engine runs that is watched from here: a server's address, and the key that it asks for."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLineEdit, QWidget

from app import storage
from app.language import tr
from app.session.server_link import control_words
from app.ui.controls import button, line_edit
from app.ui.labels import Note, Row
from app.ui.layout.boxes import column, row
from engine import InvalidInput
from engine.remote import LinkStatus, ServerAddress

URL_KEY = "server/url"


class ServerFields(QWidget):
    """The address is kept for the next start, the key is not."""

    edited = Signal()
    entered = Signal()
    control_asked = Signal(bool)  # to take it, or to give it back
    fleet_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("server_fields")
        self.url = line_edit("server_url", hint=tr("host:port"))
        self.url.setText(str(storage.settings().value(URL_KEY, "")))
        self.key = line_edit("server_key", hint=tr("if it asks for one"))
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.note = Note("server_note")
        self.control = button("server_control", act=lambda: self.control_asked.emit(self._free))
        fleet = tr("The server's replicas, what each computes, and where requests go, in a window of its own")
        self.fleet = button("server_fleet", tr("Fleet …"), self.fleet_asked, tip=fleet)
        self._free = False  # nobody has control, and this window may
        self._offer(None)
        rows = Row(tr("Address"), self.url), Row(tr("Key"), self.key)
        asks = row((self.control, 1), (self.fleet, 1), spacing=8)
        self.setLayout(column(*rows, self.note, asks, margins=(0, 0, 0, 0), spacing=8))
        for field in (self.url, self.key):
            field.textChanged.connect(self.edited)
            field.returnPressed.connect(self.entered)

    def address(self) -> ServerAddress:
        """Raises InvalidInput."""
        if not self.url.text().strip():
            raise InvalidInput(tr("Type a server's address, such as http://127.0.0.1:8000."))
        return ServerAddress(self.url.text(), self.key.text())

    def show_address(self, server: ServerAddress) -> None:
        """Of the server that this window is connected to."""
        self.url.setText(server.url)
        self.key.setText(server.key)
        storage.settings().setValue(URL_KEY, server.url)

    def say(self, status: LinkStatus | None) -> None:
        """What this window may do there, and who has control."""
        self._offer(status)
        if status is None:
            self.note.say(tr("`batchscope serve` runs there. Its engine is shown here as if it were this machine's."))
            return
        if not status.observes:
            self.note.say(tr("This window has control: it sends, stops and steers."))
            return
        why = f"{status.observes}; {control_words(status)}" if status.barred else control_words(status)
        told = tr("Watching: {why}.", why=why) if status.texts else tr("Watching without texts: {why}.", why=why)
        self.note.say(told)

    def _offer(self, status: LinkStatus | None) -> None:
        """What can be asked of a server as it stands."""
        self._free = status is not None and status.free
        self.control.setVisible(status is not None and (self._free or not status.observes))
        self.control.setText(tr("Take control") if self._free else tr("Give control back"))
        tip = tr("Nobody has control: this window can send, stop and steer from now on, and reads all texts")
        back = tr("Another window can take it then. What this one has sent goes on, and is told here without texts")
        self.control.setToolTip(tip if self._free else back)
        self.fleet.setVisible(status is not None and status.replicas > 0)
