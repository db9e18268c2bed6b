"""The load under way, as the Models page tells it: what is done, how far it is, Cancel."""

from PySide6.QtWidgets import QFrame

from app.language import tr
from app.session.loading.progress import LoadStatus
from app.session.session import Session, SessionState
from app.ui.controls import button
from app.ui.layout.boxes import column, row
from app.ui.layout.zoomed import zoomed
from app.ui.line import Line
from app.ui.progress import Progress
from app.words import model_words


class LoadStrip(QFrame):
    """Shown while the session loads a model, whoever asked for it."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.setObjectName("models_loading")
        self.setProperty("role", "panel")
        self._session = session
        self.words = Line("models_loading_words")
        self.progress = Progress("models_loading_progress", tr("Loading"))
        self.cancel = button("models_loading_cancel", tr("Cancel"), self._on_cancel, said=tr("Cancel the load"))
        beside = zoomed(column(self.words, self.progress), spacing=6)
        self.setLayout(zoomed(row((beside, 1), self.cancel), (16, 10, 12, 10), 16))
        session.state_changed.connect(self._on_state)
        session.load_progressed.connect(self._on_progress)
        self._on_state(session.state)

    def _on_state(self, state: SessionState) -> None:
        loading = state is SessionState.LOADING
        self.setVisible(loading)
        self.cancel.setEnabled(True)
        if loading:
            self.progress.show_share(None)
            model = model_words(self._session.spec.source)
            self.words.say(tr("Loading {model}  ·  starting the engine …", model=model))

    def _on_progress(self, status: LoadStatus) -> None:
        loading = tr("Loading {model}", model=model_words(self._session.spec.source))
        parts = [loading, status.words.replace(" · ", "  ·  ")]
        self.progress.show_share(status.done, status.total)
        if status.remaining is not None:
            parts.append(tr("about {seconds} s left", seconds=max(1, round(status.remaining))))
        self.words.say("  ·  ".join(parts))

    def _on_cancel(self) -> None:
        self.cancel.setEnabled(False)
        self.words.say(tr("Cancelling …"))
        self._session.cancel_load()
