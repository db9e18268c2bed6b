"""The colour of what a request does now."""

from __future__ import annotations

from PySide6.QtGui import QColor

from app.ui.theme import Theme
from engine.trace import FinishReason, RequestView, State


def state_color(view: RequestView, theme: Theme) -> QColor:
    """The colour of the state's words. Colour is never the only sign: the words say the same."""
    match view.state:
        case State.PREFILL:
            return theme.accent
        case State.DECODE:
            return theme.good
        case State.PREEMPTED:
            return theme.warn
        case State.FINISHED if view.reason is FinishReason.ERROR:
            return theme.bad
        case _:
            return theme.secondary
