"""The timeline of a module's own `trace`."""

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.inside.timeline.panel import TimelinePanel
from app.playback.scope import Scope
from engine import Trace


@pytest.fixture
def panel(trace: Trace, qtbot: QtBot) -> Iterator[TimelinePanel]:
    scope = Scope()
    scope.show(trace)
    shown = TimelinePanel(scope)
    qtbot.addWidget(shown)
    shown.resize(1000, 420)
    shown.show()
    qtbot.waitExposed(shown)
    scope.catch_up()
    yield shown
    scope.stop()
