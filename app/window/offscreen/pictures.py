"""Pictures of a run: the window and each of its panels, drawn by the real window on no display."""

import os
from collections.abc import Callable
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Self

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtGui import QPixmap
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFrame, QWidget

from app import storage
from app.inside.insights import INSIGHTS
from app.inside.panel import InsightPanel
from app.language import tr
from app.play.transcript.styles import TokenMode
from app.playback.bridge import Bridge
from app.session.session import Session
from app.ui.layout.boxes import column, panel
from app.ui.look import theme
from app.window.main_window import MainWindow
from app.window.start.application import make_application
from app.words import run_words
from engine import InvalidInput, Trace, load_trace

WINDOW = QSize(1600, 1000)
TALL = QSize(1600, 1300)  # a transcript whose tokens have their card below them
WIDE = QSize(1200, 420)
SIZES = {"timeline": WIDE, "step": WIDE, "kv_map": QSize(760, 460), "memory": QSize(1000, 320)}
SIZES |= {"attention": QSize(1000, 420)}
SIZES |= {"roofline": QSize(820, 460), "machine": QSize(520, 380), "beams": QSize(900, 330), "experts": QSize(860, 420)}
CARD_ROOM = 110  # pixels below a transcript for the card of a token in its first line
SETTLE_MS = 400  # streams and charts come to rest


def nothing(_: InsightPanel) -> None:
    """The panel stays as it is built."""


class RunPictures:
    """Shows one trace, by its run's name, in a window that is on no screen; a context manager, one at a time."""

    def __init__(self, trace: Trace, name: str, *, light: bool = False, scale: float = 1.0) -> None:
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
        self._application, self._scale = make_application(), scale
        theme.set_theme("light" if light else "dark")
        self._bridge = Bridge()
        self.window = MainWindow(Session(), self._bridge)
        self.window.keeps_layout = False
        self.window.resize(WINDOW)
        self.window.show()
        self.window.page.complete()
        self._bridge.show(trace)
        while self._bridge.behind:
            QTest.qWait(1)
        self.scope = self._bridge.scope
        self.window.page.show_run(name, trace.header)
        self.window.top_bar.say(tr("saved run  ·  {run}", run=run_words(trace.header)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bridge.stop()
        self.window.hide()
        self.window.deleteLater()
        self._application.processEvents()

    def show(self, at: float | None = None, request: int = -1) -> None:
        """The moment in seconds from the first prompt, None for the end; and the selected request, -1 for none."""
        self.scope.catch_up()
        self.scope.select(request)
        self.scope.show_at(inf if at is None else self.scope.origin + at)
        QTest.qWait(SETTLE_MS)
        places = self.window.page.places.values()
        while not all(place.panel for place in places if place.isVisible()):
            QTest.qWait(1)
        self.scope.catch_up()
        QTest.qWait(1)

    def whole(self, path: Path) -> None:
        """The window as it is."""
        self.save(self.window, path)

    def panel(
        self, name: str, path: Path, size: QSize | None = None, set_up: Callable[[InsightPanel], object] = nothing
    ) -> None:
        """One of `INSIGHTS` alone; `set_up` may choose in it what a person would."""
        insight = next(each for each in INSIGHTS if each.name == name)
        shown = insight.build(self.scope)
        set_up(shown)
        frame = self.framed(shown, size or SIZES[name])
        self.scope.catch_up()
        QTest.qWait(20)
        self.save(frame, path)
        shown.close_down()
        frame.close()

    def tokens(self, request: int, token: int, path: Path) -> None:
        """The transcript of a request, its tokens coloured by probability, with the card of one of them."""
        page = self.window.page
        self.window.resize(TALL)
        page.layout_of.prompt()
        page.docks["transcript"].raise_()
        self.scope.follow()
        self.scope.select(request)
        page.transcript.switch.modes.button(list(TokenMode).index(TokenMode.PROBABILITY)).click()
        QTest.qWait(SETTLE_MS)
        self.scope.catch_up()
        page.transcript.text.setFocus()
        page.transcript.text.go(token)
        QTest.qWait(50)
        dock = page.docks["transcript"]
        corner = dock.mapTo(self.window, QPoint(0, 0))
        room = QRect(corner, dock.size()).adjusted(0, 0, 0, CARD_ROOM).united(page.transcript.card.geometry())
        self.save(self.window, path, room)

    def framed(self, content: QWidget, size: QSize) -> QFrame:
        """A widget on a card of its own, shown."""
        frame = panel(column(content, margins=(12, 12, 12, 12)), "body")
        frame.resize(size)
        frame.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        frame.setFocus()  # and no button of the panel
        frame.show()
        return frame

    def save(self, widget: QWidget, path: Path, part: QRect | None = None) -> None:
        """The widget, or a part of it. Raises InvalidInput where the file cannot be written."""
        part = part or widget.rect()
        pixmap = QPixmap(part.size() * self._scale)
        pixmap.setDevicePixelRatio(self._scale)
        pixmap.fill(theme.current().window)
        widget.render(pixmap, QPoint(), part)
        if not pixmap.save(str(path)):
            raise InvalidInput(f"cannot write {path}; choose another folder")
        print(f"{'picture':<24}{path}")


def run_pictures(
    run: Path, folder: Path, *, at: float | None = None, request: int = -1, light: bool = False, scale: float = 1.0
) -> int:
    """Writes the window with all panels, and each panel alone, as PNG files into `folder`; returns the exit status.

    Raises InvalidInput where the run cannot be read, has no such request, or the folder cannot be written.
    """
    trace = load_trace(run)
    if request != -1 and request not in trace.requests:
        raise InvalidInput(f"request={request}: the run has {len(trace.requests):,}, the first is 0")
    storage.made(folder)
    with RunPictures(trace, run.stem, light=light, scale=scale) as pictures:
        pictures.window.page.see_inside()
        pictures.show(at, request)
        pictures.whole(folder / "inside.png")
        for insight in INSIGHTS:
            pictures.panel(insight.name, folder / f"{insight.name}.png")
    return 0
