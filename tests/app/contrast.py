"""How well colours can be told apart."""

from PySide6.QtGui import QColor


def contrast(one: QColor, other: QColor) -> float:
    """Contrast ratio of two opaque colours, 1 to 21 (WCAG 2.2)."""

    def luminance(color: QColor) -> float:
        channels = (color.redF(), color.greenF(), color.blueF())
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
