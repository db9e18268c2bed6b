"""Where the window and its panels stand: kept between starts, and as they were first with one command."""

from PySide6.QtCore import QObject, QRect
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMainWindow

from app import storage
from app.language import tr
from app.play.page import PlayPage
from app.ui.banner import Banner

GEOMETRY_KEY = "window/geometry"
GRIP = 80  # pixels of a window that must be on a screen, so that it can be taken hold of


class WindowLayout(QObject):
    """`first` sizes the window as it is at the very first start."""

    def __init__(self, window: QMainWindow, page: PlayPage, banner: Banner, first: QRect) -> None:
        super().__init__(window)
        self._window, self._page, self._banner, self._first = window, page, banner, first

    def restore(self) -> None:
        """As it was kept; a window whose screen is gone comes to the one that is there."""
        self._window.resize(self._first.size())
        geometry = storage.kept_state(GEOMETRY_KEY)
        if geometry is not None:
            self._window.restoreGeometry(geometry)
        frame = self._window.geometry()
        seen = [screen.availableGeometry() & frame for screen in QGuiApplication.screens()]
        if not any(part.width() >= GRIP and part.height() >= GRIP for part in seen):
            self._window.move(QGuiApplication.primaryScreen().availableGeometry().topLeft())

    def keep(self) -> None:
        storage.keep_state(GEOMETRY_KEY, self._window.saveGeometry())
        self._page.keep_layout()

    def reset(self) -> None:
        """Window and panels as they were first; the banner can undo it."""
        window, page = self._window, self._page
        geometry, docks, inside = window.saveGeometry(), page.area.saveState(), page.cursor_bar.inside.isChecked()
        if window.isFullScreen() or window.isMaximized():
            window.showNormal()
        room = window.screen().availableGeometry()
        size = self._first.size().boundedTo(room.size())
        window.setGeometry(QRect(room.center() - QRect(0, 0, size.width(), size.height()).center(), size))
        page.see_inside(False)

        def undo() -> None:
            window.restoreGeometry(geometry)
            page.see_inside(inside)
            page.area.restoreState(docks)

        words = tr("The window and its panels stand as at the first start.")
        self._banner.tell("info", tr("The layout was reset"), words, action=(tr("Undo"), undo), passes=True)
