"""A strip under the top bar: what happened, what was kept, what to do, and details to copy."""

from collections.abc import Callable

from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy

from app.language import tr
from app.ui.controls import button
from app.ui.labels import label, set_role
from app.ui.layout.boxes import column, fill, named

Action = tuple[str, Callable[[], object]]
DISMISS = tr("Dismiss")
PASSES_MS = 12_000
MARKS = {"error": "✕", "warning": "!", "info": "i"}


class Banner(QFrame):
    """Hidden until `tell`; its buttons hide it again, and time does what passes, unless one points at it."""

    def __init__(self) -> None:
        super().__init__()
        named(self, "banner", "banner")
        self._details = ""
        self._action: Callable[[], object] | None = None
        self._dismiss: Callable[[], object] | None = None
        self._passes = QTimer(self, singleShot=True, interval=PASSES_MS)
        self._passes.timeout.connect(self._on_time)
        self._mark = label("", "error")
        self.title = label("", "title", "banner_title")
        self.text = label("", "secondary", "banner_text")
        for words in (self.title, self.text):
            words.setWordWrap(True)
            words.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.copy = button("banner_copy", tr("Copy details"), self._on_copy, role="quiet")
        self.close_button = button("banner_close", DISMISS, self._on_dismiss, role="quiet")
        self.action = button("banner_action", "", self._on_action, role="primary")
        told = (self._mark, (column(self.title, self.text, spacing=2), 1))
        fill(QHBoxLayout(self), *told, self.copy, self.close_button, self.action, margins=(12, 8, 12, 8), spacing=8)
        self.hide()

    def tell(
        self,
        level: str,
        title: str,
        text: str,
        *,
        details: str = "",
        action: Action | None = None,
        dismiss: Action | None = None,
        passes: bool = False,
    ) -> None:
        """Shows a message. `level` is error, warning or info; `action` a button's words and what it does, `dismiss`
        those of the one that puts the message away. `passes`: of what is over, and needs no answer."""
        self.setProperty("level", level)
        set_role(self, "banner")
        set_role(self._mark, {"error": "error", "warning": "warning"}.get(level, "note"))
        self._mark.setText(MARKS[level])
        self.title.setText(title)
        self.text.setText(text)
        self.text.setVisible(bool(text))
        self._details = details
        self.copy.setVisible(bool(details))
        self._action = action[1] if action else None
        self.action.setVisible(action is not None)
        self.action.setText(action[0] if action else "")
        self.action.setAccessibleName(action[0] if action else "")
        words, self._dismiss = dismiss or (DISMISS, None)
        self.close_button.setText(words)
        self.close_button.setAccessibleName(words)
        self.setAccessibleName(_said(level, title, text))
        self._passes.start() if passes else self._passes.stop()
        self.show()

    def pass_by(self) -> None:
        """Puts a message that passes away now: what came after it makes it old."""
        if self._passes.isActive():
            self.hide()

    def _on_time(self) -> None:
        if self.underMouse() or any(each.hasFocus() for each in (self.copy, self.close_button, self.action)):
            self._passes.start()
        else:
            self.hide()

    def _on_action(self) -> None:
        action, self._action = self._action, None
        self.hide()
        if action is not None:
            action()

    def _on_dismiss(self) -> None:
        dismiss, self._dismiss = self._dismiss, None
        self.hide()
        if dismiss is not None:
            dismiss()

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(f"{self.title.text()}\n{self.text.text()}\n\n{self._details}".strip())


def _said(level: str, title: str, text: str) -> str:
    match level:
        case "error":
            return tr("error: {title}. {text}", title=title, text=text)
        case "warning":
            return tr("warning: {title}. {text}", title=title, text=text)
        case _:
            return tr("info: {title}. {text}", title=title, text=text)
