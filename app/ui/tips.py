"""Tips that say what they are given to the letter."""

from PySide6.QtCore import QPoint
from PySide6.QtGui import Qt
from PySide6.QtWidgets import QToolTip, QWidget


def show_tip(at: QPoint, words: str, widget: QWidget) -> None:
    """At a point of the screen; without words none is shown. A prompt that looks like HTML is not read as such."""
    QToolTip.showText(at, Qt.convertFromPlainText(words) if Qt.mightBeRichText(words) else words, widget)
