"""The session's engine while it is lent: one model after another on it, never two in memory at once.

Blocks while a model loads or ends: use it off the GUI thread.
"""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock

from app.language import tr
from app.words import SHIPPED
from engine import EngineConfig, InvalidInput, ModelSpec
from engine.checkpoints import inspect_model
from engine.core import EngineFace
from engine.jobs import LoadCancelled, LoadProgress, engine_missing

Report = Callable[[LoadProgress], None]
MakeEngine = Callable[[ModelSpec, EngineConfig, Report | None, Event], EngineFace]  # as EngineLoader.make


def check_files(spec: ModelSpec) -> None:
    """Looks at a local model before another one makes room for it. Raises InvalidInput; may block on disk."""
    if words := engine_missing():
        raise InvalidInput(words)
    if spec.source in SHIPPED or Path(spec.source).expanduser().is_absolute():
        inspect_model(spec)


class EngineLease:
    """Hands out the engine there is where it holds the model that is asked for; else a fresh one in its place.

    Setting `cancelled` ends whatever is done with the lease. Nothing is handed out after `end`, which gives the engine
    back that is there then.
    """

    def __init__(self, make: MakeEngine, engine: EngineFace | None, spec: ModelSpec) -> None:
        self.cancelled = Event()
        self._make, self._engine, self._spec = make, engine, spec
        self._lock = Lock()
        self._ended = False
        self.refused = ""

    @property
    def engine(self) -> EngineFace | None:
        """The engine that is there now; None while there is none."""
        return self._engine

    def open(
        self, spec: ModelSpec, config: EngineConfig, progress: Report | None = None, cancelled: Event | None = None
    ) -> EngineFace:
        """An engine with this model. Raises InvalidInput, EngineDied and LoadCancelled as the engine does."""
        with self._lock:
            if self._ended or self.cancelled.is_set():
                raise LoadCancelled(tr("the race was stopped"))
            if self._engine is not None and self._engine.alive and self._spec == spec:
                return self._engine
            check_files(spec)
            self._close()
            self._engine = self._make(spec, config, progress, cancelled or self.cancelled)
            self._spec = spec
            return self._engine

    def close(self) -> None:
        """Nothing to do: whoever lent the engine takes it back, and knows what to keep."""

    def end(self, keep: ModelSpec | None, config: EngineConfig) -> EngineFace | None:
        """The engine when it lives and holds the model `keep`, with `config` and a fresh trace; any other is closed.
        None when there is none then; `refused` says why where it would not take the config."""
        self.cancelled.set()
        with self._lock:
            self._ended = True
            if self._engine is None or not self._engine.alive or self._spec != keep:
                self._close()
            if self._engine is not None:
                try:
                    self._engine.begin(config)
                except (InvalidInput, RuntimeError) as error:
                    self.refused = str(error)
                    self._close()
            engine, self._engine = self._engine, None
            return engine

    def _close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
