"""`batchscope fleet`'s window, by itself."""

from app.fleet import FleetSource
from app.window.application import make_application
from app.window.fleet.window import FleetWindow
from engine.remote import ServerAddress


def open_fleet(address: ServerAddress) -> int:
    """Shows it until it is closed."""
    app = make_application()
    window = FleetWindow(FleetSource(address))
    app.setQuitOnLastWindowClosed(True)
    window.show()
    return app.exec()
