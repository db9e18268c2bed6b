"""A bridge on a trace that the test itself writes, and what shows it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.bench.synthetic import header
from app.play.charts.panel import LiveCharts
from app.play.requests.table import RequestTable
from app.play.streams.wall import StreamWall
from app.playback.bridge import Bridge
from app.ui.look import theme
from engine import Trace


@pytest.fixture
def bridge(qtbot: QtBot) -> Iterator[Bridge]:
    bridge = Bridge()
    bridge.show(Trace([header(8, 100)]))
    yield bridge
    bridge.stop()


Show = Callable[[type[QWidget], int, int], Any]


@pytest.fixture
def on_bridge(qtbot: QtBot, bridge: Bridge) -> Show:
    """Shows a widget of the bridge's, of a size."""

    def shown(kind: type[QWidget], width: int, height: int) -> Any:
        theme.set_theme("dark")
        widget = kind(bridge)
        qtbot.addWidget(widget)
        widget.resize(width, height)
        widget.show()
        qtbot.waitExposed(widget)
        return widget

    return shown


@pytest.fixture
def wall(on_bridge: Show) -> StreamWall:
    return on_bridge(StreamWall, 1000, 520)


@pytest.fixture
def table(on_bridge: Show) -> RequestTable:
    return on_bridge(RequestTable, 1000, 420)


@pytest.fixture
def charts(on_bridge: Show) -> LiveCharts:
    return on_bridge(LiveCharts, 280, 560)
