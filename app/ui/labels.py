"""Words on a panel: headings, notes that may be empty, rules, and labelled rows."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QFrame, QHBoxLayout, QLabel, QSizePolicy, QWidget

from app.ui.layout.boxes import fill, named


def set_role(widget: QWidget, role: str) -> None:
    """Gives the widget one of the style sheet's roles, now or later."""
    widget.setProperty("role", role)
    widget.style().unpolish(widget)
    widget.style().polish(widget)


def label(text: str, role: str, name: str = "") -> QLabel:
    return named(QLabel(text, textFormat=Qt.TextFormat.PlainText), name, role)


class Note(QLabel):
    """A wrapped line that takes no room while it has nothing to say. Roles: note, warning, error."""

    def __init__(self, name: str, role: str = "note") -> None:
        super().__init__()
        named(self, name, role)
        self.setWordWrap(True)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self.setVisible(False)

    def say(self, text: str, role: str | None = None) -> None:
        """Shows the text, or nothing at all when it is empty."""
        if role is not None and role != self.property("role"):
            set_role(self, role)
        if text != self.text():
            self.setText(text)
            self.setAccessibleName(text)
        self.setVisible(bool(text))


class Hairline(QFrame):
    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "hairline")
        self.setFixedHeight(1)


class Row(QWidget):
    """A label in the label column and its control beside it."""

    def __init__(self, text: str, control: QWidget, tip: str = "") -> None:
        super().__init__()
        # A switch stands at the far edge, so its label need not end with the column of labels.
        self.label = label(text, "secondary" if isinstance(control, QAbstractButton) else "row")
        self.label.setBuddy(control)
        self.control = control
        if not control.accessibleName():
            control.setAccessibleName(text)
        if tip:
            self.setToolTip(tip)
            control.setAccessibleDescription(tip)
        fill(QHBoxLayout(self), self.label, (control, 1), spacing=6)


class Heading(QWidget):
    """A section's title, with room for quiet controls at the right."""

    def __init__(self, text: str, *controls: QWidget) -> None:
        super().__init__()
        self._title = label(text.upper(), "heading")
        fill(QHBoxLayout(self), self._title, None, *controls)

    def say(self, text: str) -> None:
        """Another title."""
        if text.upper() != self._title.text():
            self._title.setText(text.upper())
