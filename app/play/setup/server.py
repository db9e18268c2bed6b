"""Where an engine runs that is watched from here: a server's address, and the key that it asks for."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLineEdit, QWidget

from app import storage
from app.language import tr
from app.ui.controls import line_edit
from app.ui.labels import Note, Row
from app.ui.layouts import column
from engine import InvalidInput
from engine.remote import LinkStatus, ServerAddress

URL_KEY = "server/url"


class ServerFields(QWidget):
    """The address is kept for the next start, the key is not."""

    edited = Signal()
    entered = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("server_fields")
        self.url = line_edit("server_url", hint=tr("host:port"))
        self.url.setText(str(storage.settings().value(URL_KEY, "")))
        self.key = line_edit("server_key", hint=tr("if it asks for one"))
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.note = Note("server_note")
        rows = Row(tr("Address"), self.url), Row(tr("Key"), self.key)
        self.setLayout(column(*rows, self.note, margins=(0, 0, 0, 0), spacing=8))
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
        """What this window may do there."""
        if status is None:
            self.note.say(tr("`batchscope serve` runs there. Its engine is shown here as if it were this machine's."))
        elif status.observes and not status.texts:
            self.note.say(tr("Watching without texts: {why}.", why=status.observes))
        elif status.observes:
            self.note.say(tr("Watching: {why}.", why=status.observes))
        else:
            self.note.say(tr("This window has control: it sends, stops and steers."))
