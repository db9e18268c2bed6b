"""The empty conversation: one sentence, three prompts to begin with."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QWidget

from app.language import tr
from app.session.session import Session, SessionState
from app.ui.controls import button
from app.ui.labels import label
from app.ui.layout.boxes import column, held, named, row
from app.ui.layout.zoomed import zoomed
from engine import ModelSpec

READY = tr("Say something: every conversation is kept here.")
WORDS = {
    SessionState.LOADING: tr("The model is loading."),
    SessionState.EMPTY: tr("No model is loaded."),
    SessionState.DIED: tr("The engine has died: restart it first."),
}
EXAMPLES = (
    "Tell me a story about a fox and a lantern.",
    "Tell me a story about a shy robot who was lost in the snow.",
    "Tell me a story about a dragon, a piano and a small bridge.",
)


class Welcome(QFrame):
    asked = Signal(str)  # one of the prompts

    def __init__(self, session: Session) -> None:
        super().__init__()
        named(self, "chat_welcome", "panel")
        self._session = session
        self.words = label(READY, "title", "chat_welcome_words")
        self.words.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.words.setWordWrap(True)
        self.examples = [self._example(i, text) for i, text in enumerate(EXAMPLES)]
        self.load = button("chat_load_demo", tr("Load the demo model"), self._on_load, role="primary")
        middle = Qt.AlignmentFlag.AlignHCenter
        inner = held(zoomed(column(self.words, 8, *self.examples, (self.load, 0, middle)), spacing=8))
        self.setLayout(column(None, row(None, inner, None), None))
        session.state_changed.connect(self._tell)
        self._tell()

    def _example(self, number: int, text: str) -> QWidget:
        return button(f"chat_example_{number}", text, lambda: self.asked.emit(text), tip=tr("Send this prompt"))

    def _tell(self, *changed: object) -> None:
        state = self._session.state
        self.words.setText(WORDS.get(state, READY))
        self.load.setVisible(state is SessionState.EMPTY)
        for example in self.examples:
            example.setEnabled(state is SessionState.READY)

    def _on_load(self) -> None:
        self._session.start(self._session.load(ModelSpec("demo"), self._session.config))
