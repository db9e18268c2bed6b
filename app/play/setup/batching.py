"""The batching panel: mode and limits. A change takes effect at once when the engine is idle, else when it is."""

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget

from app.language import tr, trn
from app.playback.bridge import Bridge
from app.session.session import Session
from app.ui.forms.config_form import ConfigForm
from app.ui.labels import Heading, Note
from app.ui.layout.boxes import column
from engine import EngineConfig, InvalidInput

# Of what the form does not show, or not all, and what these go with.
KEPT = "depth mixed_graphs seed preemption swap_memory prefix_caching offload_prefixes".split()
PREPARES = tr("The engine gets ready for this …")
SLOW_MS = 400  # a change that takes longer is said to be under way: a new pool, new captures


class BatchingPanel(QWidget):
    """Edits an `EngineConfig` and hands it to the session."""

    def __init__(self, session: Session, bridge: Bridge) -> None:
        super().__init__()
        self.setObjectName("batching_panel")
        self._session, self._bridge = session, bridge
        self.form = ConfigForm("batching", pool=True)
        self.note = Note("batching_note")
        self._waits = False  # a change takes effect when the running requests end
        self._slow = QTimer(self, singleShot=True, interval=SLOW_MS)
        self._slow.timeout.connect(lambda: self.note.say(PREPARES, "note"))
        self.setLayout(column(Heading(tr("Batching")), self.form, self.note, margins=(12, 12, 12, 12), spacing=8))
        self.form.edited.connect(self._on_edited)
        session.config_changed.connect(self.set_config)
        session.model_loaded.connect(lambda card: self.form.offer_adapters(bool(card.adapters)))
        session.model_loaded.connect(lambda card: self.form.offer_going_back(bool(card.state_layers)))
        session.config_refused.connect(lambda message: self.note.say(message, "error"))
        bridge.busy_changed.connect(self._on_busy)
        bridge.records_arrived.connect(self._say_waits)

    def config(self) -> EngineConfig:
        """The config as chosen. Raises InvalidInput when its values do not go together."""
        now = self._session.config
        kept = {name: getattr(now, name) for name in KEPT}
        return self.form.config(EngineConfig(**kept))

    def set_config(self, config: EngineConfig) -> None:
        """Shows this config as the one in force. What its mode has no use for keeps its value."""
        self.form.set_config(config)
        self.note.say("")

    def _on_edited(self) -> None:
        self.note.say("")
        self._waits = False
        try:
            config = self.config()
        except InvalidInput as error:
            self.note.say(str(error), "error")
            return
        if config == self._session.config:
            return
        if self._bridge.busy:
            self._waits = True
            self._say_waits()
        else:
            self._slow.start()
            self._session.start(self._session.begin(config)).add_done_callback(lambda task: self._slow.stop())

    def _say_waits(self) -> None:
        count = len(self._bridge.open)
        if self._waits and count:
            words = trn(
                "Fixed while requests run. Takes effect when the running request ends.",
                "Fixed while requests run. Takes effect when the {count:,} running requests end.",
                count,
            )
            self.note.say(words, "warning")

    def _on_busy(self, busy: bool) -> None:
        if not busy and self._waits:
            self._on_edited()
