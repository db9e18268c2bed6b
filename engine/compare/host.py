"""Where the engines of a comparison come from: one idle engine at a time, with the model that is asked for."""

from __future__ import annotations

from threading import Event
from typing import Protocol

from engine.config.specs import EngineConfig, ModelSpec
from engine.core.face import EngineFace
from engine.jobs.job import Report


class EngineHost(Protocol):
    """Hands out engines. `open` returns an idle one with `spec` loaded: the one there is where that holds an equal spec
    and lives, else a fresh one in its place, built under `config`. It raises what loading raises."""

    def open(self, spec: ModelSpec, config: EngineConfig, progress: Report, cancelled: Event) -> EngineFace: ...

    def close(self) -> None: ...


class LocalHost:
    """Engines in this process. `threads` is how many torch uses on a CPU (None: the fastest, measured at load)."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._spec: ModelSpec | None = None
        self._engine: EngineFace | None = None

    def open(self, spec: ModelSpec, config: EngineConfig, progress: Report, cancelled: Event) -> EngineFace:
        engine = self._engine
        if engine is not None and engine.alive and self._spec == spec:
            return engine
        if engine is not None and engine.lost:
            raise RuntimeError(f"{engine.error}: nothing can be loaded in this process any more; start it again")
        from engine.core.engine import Engine

        self.close()  # its memory is needed
        engine = Engine(spec, config, progress=progress, cancelled=cancelled, threads=self._threads)
        self._engine, self._spec = engine, spec
        return engine

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def __enter__(self) -> LocalHost:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
