"""The one style sheet over Fusion: `resources/style.qss`, with the theme's tokens and the zoom's lengths filled in.

Roles are dynamic properties: `widget.setProperty("role", "heading")`.
"""

from string import Template

from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication, QLayout, QStyleFactory

import resources
from app.ui.look import theme
from app.ui.look.theme import Theme, px


def _css(color: QColor) -> str:
    return f"rgba({color.red()},{color.green()},{color.blue()},{color.alphaF():.3f})"


def style_sheet(tokens: Theme | None = None) -> str:
    """The style sheet of a theme at the current zoom."""
    t = tokens or theme.current()
    values: dict[str, object] = {name: _css(getattr(t, name)) for name in theme.COLORS}
    values["groove"] = _css(theme.over(t.edge, t.panel))
    values["thumb"] = _css(t.edge)
    values["rim"] = _css(t.panel if t.dark else t.hairline)  # on white, panels need an edge
    values["knob"] = "#ffffff" if t.dark else _css(t.accent)
    values |= {f"s{n}": px(n) for n in (2, 3, 4, 5, 6, 8, 10, 12, 14, 15, 18, 20, 24, 92)}
    handle = 3 * px(4)  # of a slider: its groove and as much above and below
    values |= {"handle": handle, "handle_within": handle - 4}  # a border of 2
    values |= {"r4": px(4) // 2, "handle_round": handle // 2}  # Qt draws corners square whose radius is more than half
    values |= {f"f{n}": f"{max(theme.smallest(), n * theme.zoom()):g}" for n in (11, 12, 14, 15, 18)}
    return Template(resources.path("style.qss").read_text(encoding="utf-8")).substitute(values)


def _dress(app: QApplication) -> None:
    """Every widget once. Left to itself Qt begins at each that it has rules of, and goes through all below it: eleven
    times through each in this window. So it forgets the rules of all, and learns those of the windows alone."""
    app.setFont(theme.ui())
    app.setPalette(theme.palette(theme.current()))
    style, windows = app.style(), [w for w in app.topLevelWidgets() if w.parentWidget() is None]
    style.unpolish(app)
    for window in windows:
        style.polish(window)
    app.setStyleSheet(style_sheet())
    for window in windows:  # one within another learns only later that what is in it has another size
        for layout in window.findChildren(QLayout):
            layout.invalidate()


def apply(app: QApplication) -> None:
    """Dresses the application, now and after every change of theme or zoom."""
    app.setStyle(QStyleFactory.create("Fusion"))

    def dress() -> None:
        _dress(app)

    def on_scheme() -> None:
        if theme.choice() == "system":
            theme.tell()

    dress()
    theme.changes.theme_changed.connect(dress)
    app.styleHints().colorSchemeChanged.connect(on_scheme)
