"""The colour of what a request does now."""

from PySide6.QtGui import QColor

from app.ui.look.theme import Theme
from engine.trace import FinishReason, RequestView, State


def state_color(view: RequestView, theme: Theme) -> QColor:
    """The colour of the state's words. Colour is never the only sign: the words say the same."""
    if view.reason is FinishReason.ERROR and view.state is State.FINISHED:
        return theme.bad
    colors = {State.PREFILL: theme.accent, State.DECODE: theme.good}
    colors |= dict.fromkeys((State.PREEMPTED, State.SWAPPED), theme.warn)
    return colors.get(view.state, theme.secondary)
