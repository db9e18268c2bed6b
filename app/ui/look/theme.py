"""Colours, fonts and zoom: the only place that knows a hexadecimal colour. Widgets ask at paint time, never keep one.

`changes.theme_changed` is emitted after `set_theme`, `set_zoom` or `present`, when the new values are already current.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

from PySide6.QtCore import QObject, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette

Choice = Literal["dark", "light", "system"]
UI_FAMILIES = ("Inter", "SF Pro Text", "Segoe UI", "Noto Sans", "DejaVu Sans")
MONO_FAMILIES = ("JetBrains Mono", "Cascadia Code", "SF Mono", "Noto Sans Mono", "DejaVu Sans Mono")
ZOOMS = (0.75, 0.85, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0)
GOLDEN_ANGLE = 137.508
SMALLEST = 11.0
READ_FROM_AFAR = 18.0  # pixels of the smallest words while presenting
STAGE_ZOOM, STAGE = 1.5, (1280, 720)  # lengths while presenting, on a screen of that many pixels; larger on larger ones


@dataclass(frozen=True, slots=True)
class Theme:
    """Design tokens. `field` is an input's ground, `hover` a control under the pointer, `faint` text that may be missed
    (placeholders, disabled), `hairline` the one-pixel rule; `lightness` and `chroma` are those of request colours."""

    name: str
    window: QColor
    panel: QColor
    raised: QColor
    field: QColor
    hover: QColor
    text: QColor
    secondary: QColor
    faint: QColor
    hairline: QColor
    edge: QColor
    accent: QColor
    accent_hover: QColor
    on_accent: QColor
    good: QColor
    warn: QColor
    bad: QColor
    lightness: float
    chroma: float

    @property
    def dark(self) -> bool:
        return self.name.startswith("dark")


def faded(color: QColor | str, alpha: float) -> QColor:
    """The colour, so strong."""
    result = QColor(color)
    result.setAlphaF(alpha)
    return result


COLORS: dict[str, tuple[QColor | str, QColor | str]] = {  # in the dark theme, in the light one
    "window": ("#0f1216", "#f7f8fa"),
    "panel": ("#161b21", "#ffffff"),
    "raised": ("#1e252d", "#ffffff"),
    "field": ("#1e252d", "#f1f3f6"),
    "hover": ("#28313b", "#e6e9ee"),
    "text": ("#e6e9ec", "#14181c"),
    "secondary": ("#97a1ab", "#5b6670"),
    "faint": ("#828d98", "#626d77"),
    "hairline": (faded("#ffffff", 0.08), faded("#000000", 0.10)),
    "edge": (faded("#ffffff", 0.16), faded("#000000", 0.18)),
    "accent": ("#5aa9ff", "#1769d1"),
    "accent_hover": ("#7bbaff", "#1259b4"),
    "on_accent": ("#06182c", "#ffffff"),
    "good": ("#4cc38a", "#157a4c"),
    "warn": ("#f5b83d", "#8f5a00"),
    "bad": ("#ff6b5e", "#c8372d"),
}
STAGE_COLORS: dict[str, tuple[QColor | str, QColor | str]] = COLORS | {  # 7 : 1 for all words, on any ground
    "window": ("#000000", "#e4e7eb"),
    "panel": ("#0a0d11", "#ffffff"),
    "raised": ("#12171d", "#ffffff"),
    "field": ("#181e26", "#eceff3"),
    "hover": ("#202831", "#e4e7eb"),
    "text": ("#ffffff", "#000000"),
    "secondary": ("#c6ced5", "#323b43"),
    "faint": ("#a9b2bb", "#434c55"),
    "hairline": (faded("#ffffff", 0.20), faded("#000000", 0.22)),
    "edge": (faded("#ffffff", 0.32), faded("#000000", 0.36)),
    "accent": ("#8ac4ff", "#094288"),
    "accent_hover": ("#a5d2ff", "#07356d"),
    "good": ("#6fdca8", "#0a4f30"),
    "warn": ("#ffcd69", "#5f3b00"),
    "bad": ("#ffa79e", "#8f1910"),
}


def _theme(name: str, colors: dict[str, tuple[QColor | str, QColor | str]], lightness: float, chroma: float) -> Theme:
    tokens = {token: QColor(pair[name.startswith("light")]) for token, pair in colors.items()}
    return Theme(name, **tokens, lightness=lightness, chroma=chroma)


DARK, LIGHT = _theme("dark", COLORS, 0.74, 0.13), _theme("light", COLORS, 0.58, 0.14)
DARK_STAGE = _theme("dark-stage", STAGE_COLORS, 0.80, 0.13)
LIGHT_STAGE = _theme("light-stage", STAGE_COLORS, 0.46, 0.14)


class Changes(QObject):
    theme_changed = Signal()


changes = Changes()
_held: list[bool] = []  # of each `one_change` under way, whether anything changed in it
_choice: Choice = "system"
_zoom = 1.0
_stage_zoom: float | None = None  # while presenting
_stream_font = ""


def tell() -> None:
    """Something of how all looks is another."""
    if _held:
        _held[-1] = True
    else:
        changes.theme_changed.emit()


@contextmanager
def one_change() -> Iterator[None]:
    """However much changes in it, the window is dressed anew once, at its end."""
    _held.append(False)
    try:
        yield
    finally:
        if _held.pop():
            tell()


def current() -> Theme:
    """The theme in force; "system" follows the desktop, dark where it has no opinion."""
    light = _choice == "light"
    if _choice == "system":
        hints = QGuiApplication.styleHints() if QGuiApplication.instance() is not None else None
        light = hints is not None and hints.colorScheme() is Qt.ColorScheme.Light
    if presenting():
        return LIGHT_STAGE if light else DARK_STAGE
    return LIGHT if light else DARK


def choice() -> Choice:
    return _choice


def set_theme(name: str) -> None:
    """Chooses "dark", "light" or "system". Raises ValueError for another name."""
    global _choice
    if name not in ("dark", "light", "system"):
        raise ValueError(f"theme={name!r}: must be dark, light or system")
    if name != _choice:
        _choice = cast(Choice, name)
        tell()


def presenting() -> bool:
    """Whether a room looks on: less is shown, larger, and in high contrast."""
    return _stage_zoom is not None


def present(screen: QSize | None) -> None:
    """Everything in the size and contrast for the back row before a screen of this size; None: as it was chosen."""
    global _stage_zoom
    zoom = None
    if screen is not None:
        zoom = STAGE_ZOOM * max(1.0, min(screen.width() / STAGE[0], screen.height() / STAGE[1]))
    if zoom != _stage_zoom:
        _stage_zoom = zoom
        tell()


def zoom() -> float:
    """The one in force."""
    return _zoom if _stage_zoom is None else max(_zoom, _stage_zoom)


def chosen_zoom() -> float:
    return _zoom


def smallest() -> float:
    """Pixels of the smallest words."""
    return SMALLEST if _stage_zoom is None else READ_FROM_AFAR * _stage_zoom / STAGE_ZOOM


def set_zoom(factor: float) -> None:
    """Scales every font and length; clamped to the range of `ZOOMS`."""
    global _zoom
    factor = min(max(factor, ZOOMS[0]), ZOOMS[-1])
    if factor != _zoom:
        _zoom = factor
        tell()


def stream_font() -> str:
    """The family chosen for the streams; "" for the first of `MONO_FAMILIES` that is here."""
    return _stream_font


def set_stream_font(family: str) -> None:
    global _stream_font
    if family != _stream_font:
        _stream_font = family
        tell()


def px(length: float) -> int:
    """A length of the design, in pixels at the current zoom."""
    return max(1, round(length * zoom())) if length > 0 else 0


def stroke(width: float = 1.0) -> float:
    """A line's width of the design, at the current zoom; two pixels at least while presenting."""
    return max(2.0 if presenting() else 1.0, width * zoom())


@lru_cache(maxsize=4)
def _families(preferred: tuple[str, ...], fixed: bool) -> tuple[str, ...]:
    known = set(QFontDatabase.families())
    kind = QFontDatabase.SystemFont.FixedFont if fixed else QFontDatabase.SystemFont.GeneralFont
    return (*(f for f in preferred if f in known), QFontDatabase.systemFont(kind).family())


def _font(families: tuple[str, ...], size: float, weight: int) -> QFont:
    font = QFont()
    font.setFamilies(families)
    # QFont's pixel sizes are whole numbers: half pixels go through points
    screen = QGuiApplication.primaryScreen()
    dpi = screen.logicalDotsPerInchY() if screen is not None else 96.0
    font.setPointSizeF(max(smallest(), size * zoom()) * 72 / dpi)
    font.setWeight(QFont.Weight(weight))
    return font


def ui(size: float = 13, weight: int = 400) -> QFont:
    """The interface's font at `size` pixels (before zoom), its digits of one width."""
    font = _font(_families(UI_FAMILIES, False), size, weight)
    font.setFeature(QFont.Tag("tnum"), 1)
    return font


def mono(size: float = 12.5, weight: int = 400) -> QFont:
    """The streams' fixed-width font at `size` pixels (before zoom)."""
    chosen = (_stream_font,) if _stream_font else ()
    font = _font((*chosen, *_families(MONO_FAMILIES, True)), size, weight)
    font.setStyleHint(QFont.StyleHint.Monospace)
    font.setFixedPitch(True)
    return font


def oklch(lightness: float, chroma: float, hue: float) -> QColor:
    """sRGB of an OKLCH colour, `hue` in degrees; components outside the gamut are cut (Ottosson 2020, "Oklab")."""
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    encoded = (12.92 * v if v <= 0.0031308 else 1.055 * v ** (1 / 2.4) - 0.055 for v in (max(0.0, c) for c in linear))
    return QColor.fromRgbF(*(min(1.0, c) for c in encoded))


@lru_cache(maxsize=4096)
def _request_color(request: int, lightness: float, chroma: float) -> QColor:
    return oklch(lightness, chroma, (request * GOLDEN_ANGLE) % 360)


def request_color(request: int, theme: Theme | None = None) -> QColor:
    """The one colour of a request in every panel: hues a golden angle apart. Do not change the returned colour."""
    theme = theme or current()
    return _request_color(request, theme.lightness, theme.chroma)


def over(color: QColor, ground: QColor) -> QColor:
    """The opaque colour that a translucent one makes on a ground."""
    a = color.alphaF()
    parts = zip(*((c.redF(), c.greenF(), c.blueF()) for c in (color, ground)))
    return QColor.fromRgbF(*(c * a + g * (1 - a) for c, g in parts))


def palette(theme: Theme) -> QPalette:
    """Fusion's palette in the theme's colours, for what no style sheet reaches."""
    role, group = QPalette.ColorRole, QPalette.ColorGroup
    result = QPalette()
    for color, roles in (
        (theme.window, (role.Window, role.Dark)),
        (theme.panel, (role.AlternateBase,)),
        (theme.raised, (role.Button, role.ToolTipBase)),
        (theme.field, (role.Base,)),
        (theme.hover, (role.Mid,)),
        (theme.text, (role.Text, role.WindowText, role.ButtonText, role.ToolTipText)),
        (theme.faint, (role.PlaceholderText,)),
        (theme.accent, (role.Highlight, role.Accent, role.Link)),
        (theme.on_accent, (role.HighlightedText,)),
        (theme.bad, (role.BrightText,)),
        (QColor("#000000"), (role.Shadow,)),
    ):
        for which in roles:
            result.setColor(which, color)
    for which in (role.Text, role.WindowText, role.ButtonText):
        result.setColor(group.Disabled, which, theme.faint)
    return result
