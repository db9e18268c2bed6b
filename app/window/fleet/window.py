"""A window of its own for a fleet that serves."""

from PySide6.QtCore import Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QMainWindow

from app import storage
from app.fleet import FleetPanel, FleetSource
from app.language import tr

SIZE = (1120, 680)
GEOMETRY_KEY = "fleet/geometry"


class FleetWindow(QMainWindow):
    """Watches the server from its making to its closing; the next one stands where it stood."""

    closed = Signal()

    def __init__(self, source: FleetSource) -> None:
        super().__init__()
        self.setWindowTitle(tr("Fleet at {address}", address=source.address.url))
        self.resize(*SIZE)
        if (geometry := storage.kept_state(GEOMETRY_KEY)) is not None:
            self.restoreGeometry(geometry)
        self.panel, self._source = FleetPanel(), source
        self.setCentralWidget(self.panel)
        source.told.connect(self.panel.show_state)
        source.failed.connect(self.panel.show_fault)
        source.refused.connect(self.panel.show_fault)
        self.panel.kill_asked.connect(source.kill)
        source.start()

    def closeEvent(self, event: QCloseEvent) -> None:
        storage.keep_state(GEOMETRY_KEY, self.saveGeometry())
        self._source.close()
        super().closeEvent(event)
        self.closed.emit()
