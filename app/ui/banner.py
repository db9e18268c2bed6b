"""A strip under the top bar: what happened, what was kept, what to do, and details to copy."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout

from app.ui.labels import label, set_role

MARKS = {"error": "✕", "warning": "!", "info": "i"}


class Banner(QFrame):
    """Hidden until `tell`; its action button, if any, hides it again."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("banner")
        self.setProperty("role", "banner")
        self._details = ""
        self._action: Callable[[], object] | None = None
        self._mark = label("", "error")
        self.title = label("", "title", "banner_title")
        self.title.setWordWrap(True)
        self.title.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.text = QLabel()
        self.text.setObjectName("banner_text")
        self.text.setProperty("role", "secondary")
        self.text.setTextFormat(Qt.TextFormat.PlainText)
        self.text.setWordWrap(True)
        self.text.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.action = QPushButton()
        self.action.setObjectName("banner_action")
        self.action.setProperty("role", "primary")
        self.action.clicked.connect(self._on_action)
        self.copy = QPushButton("Copy details")
        self.copy.setObjectName("banner_copy")
        self.copy.setProperty("role", "quiet")
        self.copy.clicked.connect(self._on_copy)
        self.close_button = QPushButton("Dismiss")
        self.close_button.setObjectName("banner_close")
        self.close_button.setProperty("role", "quiet")
        self.close_button.clicked.connect(self.hide)
        words = QVBoxLayout()
        words.setSpacing(2)
        words.addWidget(self.title)
        words.addWidget(self.text)
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 8, 12, 8)
        row.setSpacing(8)
        row.addWidget(self._mark)
        row.addLayout(words, 1)
        for button in (self.copy, self.close_button, self.action):
            row.addWidget(button)
        self.hide()

    def tell(
        self,
        level: str,
        title: str,
        text: str,
        *,
        details: str = "",
        action: tuple[str, Callable[[], object]] | None = None,
    ) -> None:
        """Shows a message. `level` is error, warning or info; `action` a button's words and what it does."""
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
        self.setAccessibleName(f"{level}: {title}. {text}")
        self.show()

    def _on_action(self) -> None:
        action, self._action = self._action, None
        self.hide()
        if action is not None:
            action()

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(f"{self.title.text()}\n{self.text.text()}\n\n{self._details}".strip())
