"""Whether things may move: as a person chose, or as the desktop wishes."""

from typing import Literal, cast

from PySide6.QtWidgets import QApplication, QStyle

from app.ui.look import theme

Choice = Literal["system", "on", "off"]
_choice: Choice = "system"


def set_motion(choice: str) -> None:
    """Chooses "on", "off" or "system". Raises ValueError for another name."""
    global _choice
    if choice not in ("system", "on", "off"):
        raise ValueError(f"motion={choice!r}: must be system, on or off")
    if choice != _choice:
        _choice = cast(Choice, choice)
        theme.tell()


def moving() -> bool:
    """Whether highlights fade, lights glide and panels slide."""
    if _choice != "system":
        return _choice == "on"
    style = QApplication.style()
    return style is None or style.styleHint(QStyle.StyleHint.SH_Widget_Animation_Duration) > 0
