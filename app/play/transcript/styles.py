"""How the classes of tokens look: a ground from calm to bad, and an underline where a colour alone would tell."""

from enum import StrEnum
from itertools import pairwise

from PySide6.QtGui import QColor, QTextCharFormat

from app.language import tr
from app.play.transcript.tokens import DRAFTED, FIRST, LIKELY, OWN, SLOW, STALL, TOGETHER
from app.ui.look import theme

PLAIN = 255  # the class of text that is not judged
GHOST = 254  # that of text which had not been said at the moment on show
THOUGHT = 252  # that of what the model thinks, where nothing else is judged
Line = QTextCharFormat.UnderlineStyle


class TokenMode(StrEnum):
    """By what is kept of it between starts; `TITLES` has its words."""

    TEXT = "Text"
    PROBABILITY = "Probability"
    TIME = "Time"
    DRAFTS = "Drafts"


TITLES = {
    TokenMode.TEXT: tr("Text"),
    TokenMode.PROBABILITY: tr("Probability"),
    TokenMode.TIME: tr("Time"),
    TokenMode.DRAFTS: tr("Drafts"),
}


def grounds(mode: TokenMode) -> dict[int, QColor]:
    """The ground of each class; translucent, so that it lies on any field."""
    t = theme.current()
    strong = 1.0 if t.dark else 0.85
    if mode is TokenMode.DRAFTS:
        return {DRAFTED: theme.faded(t.good, 0.30 * strong)}
    if mode is TokenMode.PROBABILITY:
        middle = theme.over(theme.faded(t.bad, 0.45), t.warn)
        ramp = ((t.warn, 0.10), (t.warn, 0.24), (middle, 0.34), (t.bad, 0.44))
    else:
        ramp = ((t.accent, 0.16), (t.accent, 0.36), (t.bad, 0.44), (t.good, 0.26))
    return {i: theme.faded(color, alpha * strong) for i, (color, alpha) in enumerate(ramp, 1)}


def underlines(mode: TokenMode) -> dict[int, tuple[Line, QColor]]:
    """The underline of those classes that have one."""
    t = theme.current()
    if mode is TokenMode.PROBABILITY:
        return {3: (Line.DotLine, t.warn), 4: (Line.SingleUnderline, t.bad)}
    if mode is TokenMode.TIME:
        return {STALL: (Line.SingleUnderline, t.bad), FIRST: (Line.DotLine, t.good)}
    if mode is TokenMode.DRAFTS:
        return {DRAFTED: (Line.DotLine, t.good)}
    return {}


def formats(mode: TokenMode) -> dict[int, QTextCharFormat]:
    """The format of every class in a mode, those of `PLAIN` and `GHOST` text among them."""
    t = theme.current()
    plain = QTextCharFormat()
    plain.setFont(theme.mono(13))
    plain.setForeground(t.text)
    ghost = QTextCharFormat(plain)
    ghost.setForeground(theme.faded(t.text, 0.34 if t.dark else 0.4))
    result = {PLAIN: plain, GHOST: ghost}
    if mode is TokenMode.TEXT:
        result[THOUGHT] = QTextCharFormat(plain)
        result[THOUGHT].setForeground(t.secondary)
        return result
    colors, lines = grounds(mode), underlines(mode)
    for kind in range(max(len(LIKELY), FIRST) + 1):
        result[kind] = QTextCharFormat(plain)
        if kind in colors:
            result[kind].setBackground(colors[kind])
        result[kind + TOGETHER] = QTextCharFormat(result[kind])
        lines.setdefault(kind + TOGETHER, lines.get(kind, (Line.DashUnderline, t.faint)))
    for kind, (style, color) in lines.items():
        result[kind].setUnderlineStyle(style)
        result[kind].setUnderlineColor(color)
    return result


def legend(mode: TokenMode, median: str = "", ttft: str = "", together: bool = False) -> list[tuple[int, str]]:
    """The classes of a mode with their words, in order."""
    if mode is TokenMode.PROBABILITY:
        shares = [f"{100 * share:.0f}" for share in LIKELY]
        between = [f"{low}–{high} %" for high, low in pairwise(shares)]
        return list(enumerate([f"≥ {shares[0]} %", *between, f"< {shares[-1]} %"]))
    if mode is TokenMode.TIME:
        classes = [(FIRST, tr("first: TTFT {time}", time=ttft) if ttft else tr("first token"))]
        if median:
            slow = [f"> {times:g} ×" for times in SLOW]
            usual, stall = tr("as usual: ITL {time}", time=median), tr("{slow}: stall", slow=slow[2])
            classes += [(0, usual), (1, slow[0]), (2, slow[1]), (STALL, stall)]
        return [*classes, (TOGETHER, tr("with the one before"))] if together else classes
    if mode is TokenMode.DRAFTS:
        return [(DRAFTED, tr("drafted, and kept")), (OWN, tr("the model's own"))]
    return []
