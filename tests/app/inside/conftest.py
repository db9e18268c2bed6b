"""What looks inside, on a scope of its own."""

from collections.abc import Callable, Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.inside.panel import InsightPanel
from app.playback.scope import Scope
from engine import Trace


@pytest.fixture
def scope(qtbot: QtBot) -> Iterator[Scope]:
    scope = Scope()
    yield scope
    scope.stop()


@pytest.fixture
def open_panel(qtbot: QtBot) -> Iterator[Callable[[type[InsightPanel], Trace, int, int], InsightPanel]]:
    """Shows a panel of a size, on screen and caught up with a trace; any number of them."""
    scopes: list[Scope] = []

    def opened(kind: type[InsightPanel], trace: Trace, width: int, height: int) -> InsightPanel:
        scopes.append(Scope())
        panel = kind(scopes[-1])
        qtbot.addWidget(panel)
        panel.resize(width, height)
        panel.show()
        qtbot.waitExposed(panel)
        panel.scope.show(trace)
        panel.scope.catch_up()
        return panel

    yield opened
    for scope in scopes:
        scope.stop()
