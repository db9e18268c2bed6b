"""A bridge on a trace that the test itself writes."""

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.bench.synthetic import header
from app.playback.bridge import Bridge
from engine import Trace


@pytest.fixture
def bridge(qtbot: QtBot) -> Iterator[Bridge]:
    bridge = Bridge()
    bridge.show(Trace([header(8, 100)]))
    yield bridge
    bridge.stop()
