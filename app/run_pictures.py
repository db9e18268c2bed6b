"""A saved run's panels as pictures, drawn by the real window on no display."""

from __future__ import annotations

import os
import sys
from math import inf
from pathlib import Path

from PySide6.QtCore import QSize
from PySide6.QtGui import QPixmap
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app import theme
from app.panels.insight import INSIGHTS
from engine import InvalidInput, load_trace

WINDOW = QSize(1600, 1000)
SIZES = {
    "timeline": QSize(1200, 420), "step": QSize(1200, 420), "kv_map": QSize(760, 460), "memory": QSize(1000, 320),
    "roofline": QSize(820, 460), "machine": QSize(520, 380),
}  # fmt: skip
SETTLE_MS = 400  # streams and charts come to rest


def run_pictures(
    run: Path, folder: Path, *, at: float | None = None, request: int = -1, light: bool = False, scale: float = 1.0
) -> int:
    """Writes the window with all panels and each panel alone as PNG files into `folder`; returns the exit status.

    `at` is the moment in seconds from the first prompt, None the end; `request` the selected one, -1 for none. Raises
    InvalidInput where the run cannot be read or the folder not be written.
    """
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    from app.bridge import Bridge
    from app.main_window import MainWindow, make_application
    from app.session import Session

    trace = load_trace(run)
    application = make_application()
    theme.set_theme("light" if light else "dark")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot write pictures to {folder}: {error.strerror}; choose another folder") from error
    session, bridge = Session(), Bridge()
    window = MainWindow(session, bridge)
    window.keeps_layout = False
    window.resize(WINDOW)
    window.show()
    window.page.complete()
    window.page.see_inside()
    bridge.show(trace)
    while bridge.behind:
        QTest.qWait(1)
    scope = bridge.scope
    scope.catch_up()
    scope.select(request)
    scope.show_at(inf if at is None else scope.origin + at)
    QTest.qWait(SETTLE_MS)
    scope.catch_up()
    _save(window, folder / "inside.png", scale)
    for insight in INSIGHTS:
        panel = insight.build(scope)
        frame = _framed(panel, SIZES[insight.name])
        scope.catch_up()
        QTest.qWait(20)
        _save(frame, folder / f"{insight.name}.png", scale)
        panel.close_down()
        frame.close()
    bridge.stop()
    window.hide()
    application.processEvents()
    sys.stdout.flush()
    return 0


def _framed(panel: QWidget, size: QSize) -> QFrame:
    frame = QFrame()
    frame.setProperty("role", "body")
    column = QVBoxLayout(frame)
    column.setContentsMargins(12, 12, 12, 12)
    column.addWidget(panel)
    frame.resize(size)
    frame.show()
    return frame


def _save(widget: QWidget, path: Path, scale: float) -> None:
    pixmap = QPixmap(widget.size() * scale)
    pixmap.setDevicePixelRatio(scale)
    pixmap.fill(theme.current().window)
    widget.render(pixmap)
    if not pixmap.save(str(path)):
        raise InvalidInput(f"cannot write {path}; choose another folder")
    print(f"{'picture':<24}{path}")
