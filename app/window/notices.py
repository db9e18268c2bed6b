"""What the banner says of the engine without being asked: that it died or is started again, that a model makes room,
and what the trace tells a person to know."""

from PySide6.QtCore import QObject

from app.language import tr, trn
from app.playback.bridge import Bridge
from app.session.session import Session, SessionState
from app.ui.banner import Banner
from app.window.runs.saved_runs import SavedRuns
from app.words import sentence
from engine.trace import Notice, Record


class Notices(QObject):
    """Listens to the session and to the trace on show."""

    def __init__(self, session: Session, bridge: Bridge, banner: Banner, runs: SavedRuns, parent: QObject) -> None:
        super().__init__(parent)
        self._session, self._bridge, self._banner, self._runs = session, bridge, banner, runs
        self._makes_room = False
        self._restarts = ""  # why the engine is being started again, until it is there
        session.state_changed.connect(self._on_state)
        session.engine_died.connect(self._on_died)
        session.engine_restarts.connect(self._on_restarts)
        session.notice_raised.connect(lambda text: banner.tell("warning", sentence(text), ""))
        session.room_made.connect(self._on_room_made)
        bridge.records_arrived.connect(self._on_records)

    def _on_state(self, state: SessionState) -> None:
        begins = state is SessionState.LOADING and not self._restarts  # what was said is of the model before
        there = state in (SessionState.READY, SessionState.LEASED)  # a race has an engine of its own
        mended = there and self._banner.property("level") == "error"
        if (begins or mended) and self._runs.path is None and not self._runs.reading:
            self._banner.hide()
        if self._makes_room and state is not SessionState.LOADING:
            self._makes_room = False
            self._banner.hide()
        if self._restarts and state is SessionState.READY:
            self._banner.tell("info", tr("The engine was started again"), self._restarts)
        if state is not SessionState.LOADING:
            self._restarts = ""

    def _on_room_made(self, words: str) -> None:
        """Stays on show for as long as it is true."""
        self._makes_room = True
        self._banner.tell("info", sentence(words), "")

    def _on_restarts(self, error: str) -> None:
        self._restarts = tr("{why}. The requests that ran have ended. All texts so far were kept.", why=sentence(error))
        self._banner.tell("warning", tr("The engine is being started again"), self._restarts)

    def _on_died(self, error: str) -> None:
        shown = {} if self._runs.path is not None else self._bridge.requests  # a saved run's were not cut
        cut = sum(view.ended is None or view.error != "" for view in shown.values())
        kept = tr("{why}. All texts so far were kept.", why=sentence(error))
        if cut:
            kept = trn(
                "{why}. All texts so far were kept, also the one under way.",
                "{why}. All texts so far were kept, also those of the {count:,} requests that were running.",
                cut,
                why=sentence(error),
            )
        self._banner.tell(
            "error",
            tr("The engine has stopped"),
            kept,
            details="\n\n".join((tr("run file: {file}", file=self._session.run_file), self._session.stacks)).strip(),
            action=(tr("Restart"), lambda: self._session.start(self._session.restart())),
        )

    def _on_records(self, records: list[Record]) -> None:
        for record in records:
            match record:
                case Notice(level="warning" | "error") if self._runs.path is not None:
                    self._runs.mention(record.time - self._bridge.scope.origin, record.text)
                case Notice(level="error") if record.text == self._session.death:
                    pass  # told as such
                case Notice(level="warning" | "error"):
                    self._banner.tell(record.level, sentence(record.text), "")
                case _:
                    pass
