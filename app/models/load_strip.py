"""The load under way, as the Models page tells it: what is done, how far it is, Cancel."""

from __future__ import annotations

from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout

from app.session.load_progress import LoadStatus
from app.session.session import Session, SessionState
from app.ui import theme
from app.ui.line import Line
from app.words import model_words


class LoadStrip(QFrame):
    """Shown while the session loads a model, whoever asked for it."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.setObjectName("models_loading")
        self.setProperty("role", "panel")
        self._session = session
        self.words = Line("models_loading_words")
        self.progress = QProgressBar()
        self.progress.setObjectName("models_loading_progress")
        self.progress.setAccessibleName("Loading")
        self.progress.setTextVisible(False)
        self.cancel = QPushButton("Cancel")
        self.cancel.setObjectName("models_loading_cancel")
        self.cancel.setAccessibleName("Cancel the load")
        self.cancel.clicked.connect(self._on_cancel)
        self._beside = QVBoxLayout()
        self._beside.addWidget(self.words)
        self._beside.addWidget(self.progress)
        self._row = QHBoxLayout(self)
        self._row.addLayout(self._beside, 1)
        self._row.addWidget(self.cancel)
        session.state_changed.connect(self._on_state)
        session.load_progressed.connect(self._on_progress)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()
        self._on_state(session.state)

    def _on_state(self, state: SessionState) -> None:
        loading = state is SessionState.LOADING
        self.setVisible(loading)
        self.cancel.setEnabled(True)
        if loading:
            self.progress.setRange(0, 0)
            self.words.say(f"Loading {model_words(self._session.spec.source)}  ·  starting the engine …")

    def _on_progress(self, status: LoadStatus) -> None:
        parts = [f"Loading {model_words(self._session.spec.source)}", status.words.replace(" · ", "  ·  ")]
        if status.total > 0:
            self.progress.setRange(0, 1000)
            self.progress.setValue(round(1000 * status.done / status.total))
        else:
            self.progress.setRange(0, 0)
        if status.remaining is not None:
            parts.append(f"about {max(1, round(status.remaining))} s left")
        self.words.say("  ·  ".join(parts))

    def _on_cancel(self) -> None:
        self.cancel.setEnabled(False)
        self.words.say("Cancelling …")
        self._session.cancel_load()

    def _on_theme(self) -> None:
        px = theme.px
        self._row.setContentsMargins(px(16), px(10), px(12), px(10))
        self._row.setSpacing(px(16))
        self._beside.setSpacing(px(6))
