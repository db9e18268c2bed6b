"""The timeline of a module's own `trace`."""

import pytest

from app.inside.timeline.panel import TimelinePanel
from engine import Trace


@pytest.fixture
def panel(trace: Trace, open_panel) -> TimelinePanel:
    return open_panel(TimelinePanel, trace, 1000, 420)
