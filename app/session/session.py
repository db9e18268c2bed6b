"""What is loaded, what runs, and where it is written: the one object between widgets and the engine.

Everything slow happens in executor threads; signals come on the GUI thread. Coroutines raise nothing that a person
could cause: failures arrive as signals with words.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar

from PySide6.QtCore import QObject, QTimer, Signal

from app.language import tr
from app.session.loading.engine_lease import EngineLease, check_files
from app.session.loading.loader import EngineLoader, failure_words
from app.session.loading.progress import LoadStatus
from app.session.memory.estimate import needed_and_free
from app.session.run_file import RunFile
from app.session.steering import Steering
from app.session.tasks import Tasks
from app.session.turns import next_turn, once_more
from app.words import bytes_words, model_words
from engine import EngineConfig, InvalidInput, ModelSpec, Submission, Trace
from engine.core import EngineFace
from engine.jobs import LoadCancelled, engine_missing
from engine.remote import LinkStatus, RemoteEngine, ServerAddress
from engine.trace import ModelCard, RequestView

T = TypeVar("T")
WATCH_MS = 200
THREADS = 8  # a load, downloads and measurements hold one each
AGAIN = 60.0  # seconds from one restart to the next: an engine that is lost sooner stays so
MEASURED_WORDS = tr("Quality is being measured on the Models page. Wait until it is done, or cancel it there.")
LEASED_WORDS = tr("A race is running; stop it on the Compare page first.")


class SessionState(StrEnum):
    EMPTY = "no model"
    LOADING = "loading"
    READY = "ready"
    DIED = "engine died"
    LEASED = "lent to a race"


class Running(Protocol):
    """What the engine, or the memory, must not be taken from while it is under way."""

    @property
    def running(self) -> bool: ...


class Session(QObject):
    """One model, one engine, one trace at a time. `trace` outlives the engine: texts stay readable after a death."""

    state_changed = Signal(object)  # SessionState
    load_progressed = Signal(object)  # LoadStatus
    model_loaded = Signal(object)  # ModelCard
    load_failed = Signal(str)  # what went wrong and what to do; empty when it was cancelled
    config_changed = Signal(object)  # EngineConfig in force
    config_refused = Signal(str)
    trace_changed = Signal(object)  # Trace
    file_written = Signal(object)  # Path of a long run that was written to its end
    submitted = Signal(object)  # list[int], ids of the requests
    submit_failed = Signal(str)
    engine_died = Signal(str)
    engine_restarts = Signal(str)  # it died of what a fresh process mends, and is loaded again by itself: why
    notice_raised = Signal(str)  # a warning that stops nothing
    room_made = Signal(str)  # the model there was is given back before another is loaded: why, and what if that fails

    def __init__(self, parent: QObject | None = None, *, in_process: bool = False) -> None:
        super().__init__(parent)
        self.spec = ModelSpec("demo")
        self.config = EngineConfig()
        self.trace: Trace | None = None
        self.server: ServerAddress | None = None  # whose engine it is, or is to be; None: this machine's
        self.state = SessionState.EMPTY
        self.load_seconds = 0.0  # of the last load, from when it was asked for to when prompts could be sent
        self.requests: Running | None = None  # what shows the trace, and knows whether its requests run
        self.measuring: Running | None = None  # what loads other models to measure their quality
        self._loader = EngineLoader(in_process, self)
        self._loader.progressed.connect(self._on_progress)
        self._engine: EngineFace | None = None
        self._lease: EngineLease | None = None
        self._restore: ModelSpec | None = None  # the model to have again after a lease
        self._own_config = self.config  # to load with again after a server's
        self._closed = self.closing = False
        self._file = RunFile(self.off_thread, self)  # of the present trace, once it has a request
        self._file.failed.connect(self.notice_raised)
        self._file.written.connect(lambda path: None if self.closing else self.file_written.emit(path))
        self.close_file = self._file.close
        self._tasks = Tasks()
        self.start = self._tasks.start  # runs a coroutine beside the window
        self._one_at_a_time = asyncio.Lock()
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="session")
        self.live: Callable[[], EngineFace | None] = lambda: self._engine if self.ready else None  # that takes requests
        self.steering = Steering(self.live, self.off_thread)
        self._restarted = -math.inf  # when it was last started again by itself
        self._death = ""  # the words with which the last engine died
        self._watch = QTimer(self, interval=WATCH_MS)
        self._watch.timeout.connect(self._on_watch)

    @property
    def card(self) -> ModelCard | None:
        return self._engine.card if self._engine is not None else None

    @property
    def link(self) -> LinkStatus | None:
        """How the connection to the server is; None where the engine is this machine's."""
        return self._engine.status if isinstance(self._engine, RemoteEngine) else None

    def holds(self, spec: ModelSpec) -> bool:
        """Whether this model is loaded here and takes prompts."""
        return self.ready and self.server is None and self.spec == spec

    @property
    def ready(self) -> bool:
        return self.state is SessionState.READY

    @property
    def busy(self) -> bool:
        """Whether requests run."""
        return self.requests is not None and self.requests.running

    @property
    def death(self) -> str:
        """The words with which the engine died, or the one before it; "" where none did."""
        return (self._engine is not None and self._engine.error) or self._death

    @property
    def stacks(self) -> str:
        """Where the engine's process was when it aborted; "" where it did not."""
        return self._engine.stacks if self._engine is not None else ""

    @property
    def engine_pid(self) -> int | None:
        """The engine's process, also while it is lent; None without one."""
        return getattr(self._engine if self._lease is None else self._lease.engine, "pid", None)

    @property
    def run_file(self) -> Path | None:
        """Where the present trace is written; None until it has a request."""
        return self._file.path

    async def off_thread(self, work: Callable[[], T]) -> T:
        """Does the work in one of the session's threads; what asks after the session's end is cancelled."""
        if self._closed:
            raise asyncio.CancelledError
        return await asyncio.get_event_loop().run_in_executor(self._executor, work)

    # -- the model ------------------------------------------------------------------------------------------------

    async def load(self, spec: ModelSpec, config: EngineConfig | None = None) -> bool:
        """Loads a model in place of the one there is. True when it is ready; else `load_failed` has said why.

        The present model stays until the new one is ready where memory holds both. Where it does not, as on a GPU,
        `room_made` says so, the present one is given back first, and is loaded again should the new one not come; while
        requests run on it, the load is refused. Requests that run until the new one is ready end then, with a notice.
        """
        if self.state is SessionState.LOADING:
            return False
        if self.state is SessionState.LEASED:
            self.load_failed.emit(LEASED_WORDS)
            return False
        before, asked = (self.spec, self.config, self.server), time.perf_counter()
        served = self.server is not None and config in (None, self.config)  # a server's settings are its own
        self.spec, self.config, self.server = spec, self._own_config if served else config or self.config, None
        self._loader.expect()
        self._set_state(SessionState.LOADING)
        gave_back = False
        try:
            await self.off_thread(lambda: check_files(spec))
            if self._engine is not None and self._engine.alive and before[2] is None:
                gave_back = await self._make_room(spec, before[0])
            engine = await self._loader.load(self.off_thread, self.spec, self.config)
        except LoadCancelled:
            return await self._load_failed("", before, gave_back)
        except Exception as error:  # whatever it was, the person is told and the window goes on
            return await self._load_failed(failure_words(error), before, gave_back)
        cut = self._engine is not None and self._engine.alive and self.busy
        await self._give_back()
        self.load_seconds = time.perf_counter() - asked
        self._take(engine, loaded=True)
        if cut:
            self.notice_raised.emit(
                tr(
                    "{model} is loaded. The requests that still ran on the model before it have ended; their texts are "
                    "kept.",
                    model=model_words(spec.source),
                )
            )
        return True

    async def connect_to(self, server: ServerAddress) -> bool:
        """The engine of a server in place of the one there is. True when its run is on show; else `load_failed` has
        said why, and what there was goes on."""
        if self.state in (SessionState.LOADING, SessionState.LEASED):
            if self.state is SessionState.LEASED:
                self.load_failed.emit(LEASED_WORDS)
            return False
        before, asked = (self.spec, self.config, self.server), time.perf_counter()
        if self.server is None:
            self._own_config = self.config
        self.server = server
        self._loader.expect()
        self._set_state(SessionState.LOADING)
        try:
            engine = await self._loader.connect_to(self.off_thread, server)
        except LoadCancelled:
            return await self._load_failed("", before, False)
        except Exception as error:
            return await self._load_failed(failure_words(error), before, False)
        await self._give_back()
        self.load_seconds = time.perf_counter() - asked
        self.spec, self.config = ModelSpec(engine.card.source or engine.card.name), engine.config
        self._take(engine, loaded=True)
        return True

    async def take_control(self, take: bool) -> None:
        """Of the server, or gives it back; `notice_raised` says why it cannot be had."""
        engine = self._engine
        if not isinstance(engine, RemoteEngine):
            return
        try:
            await self.off_thread(engine.take_control if take else engine.give_control_back)
        except (InvalidInput, RuntimeError) as error:
            self.notice_raised.emit(str(error))

    async def _make_room(self, spec: ModelSpec, present: ModelSpec) -> bool:
        """Gives the present model back where memory does not hold `spec` beside it; True when it did. On a GPU it holds
        none: the present one's pool has all that its steps leave."""
        shared = self.card is not None and self.card.device.startswith("cuda") and spec.device != "cpu"
        needed, free = (0, 0) if shared else await self.off_thread(lambda: needed_and_free(spec))
        if needed <= free and not shared:
            return False
        wanted, there = model_words(spec.source), model_words(present.source)
        told = {"model": wanted, "needed": bytes_words(needed), "free": bytes_words(free), "there": there}
        why = (
            tr("{model} needs the GPU that {there} is on", **told)
            if shared
            else tr("{model} needs about {needed}, {free} are free", **told)
        )
        if self.busy:
            raise InvalidInput(tr("{why}; stop the requests that run on {there} first", why=why, there=there))
        self.room_made.emit(
            tr("{why}: {there} makes room for it, and comes back should the load fail.", why=why, there=there)
        )
        await self._give_back()
        return True

    def _take(self, engine: EngineFace, *, loaded: bool = False) -> None:
        self._engine = engine
        self._watch.start()
        self._set_state(SessionState.READY)
        if loaded:
            self.model_loaded.emit(engine.card)
        self._set_trace(engine.trace)
        self.config_changed.emit(self.config)

    async def _load_failed(
        self, words: str, before: tuple[ModelSpec, EngineConfig, ServerAddress | None], gave_back: bool
    ) -> bool:
        """Back to the model there was before, which is loaded again where it was given back."""
        if gave_back and not self.closing:
            self.spec, self.config, self.server = before
            self._loader.expect()
            try:
                self._take(await self._loader.load(self.off_thread, self.spec, self.config), loaded=True)
            except LoadCancelled:
                self._set_state(SessionState.EMPTY)
            except Exception as error:
                model, again = model_words(self.spec.source), failure_words(error)
                words = tr("{why}; nor could {model} be loaded again: {again}", why=words, model=model, again=again)
                self._set_state(SessionState.EMPTY)
        else:
            engine, self.server = self._engine, before[2]
            if engine is not None:
                self.spec, self.config = before[:2]
            self._set_state(SessionState.EMPTY if engine is None else SessionState.READY)
            self._on_watch()  # it may have died before the load, or meanwhile
        self.load_failed.emit(words)
        return False

    def cancel_load(self) -> None:
        """Ends the load under way; `load_failed("")` says when nothing of it is left."""
        self._loader.cancel()

    async def unload(self) -> None:
        """Gives the model's memory back. The trace stays."""
        if self.state is SessionState.LEASED:
            self.notice_raised.emit(LEASED_WORDS)
            return
        await self._give_back()
        if self.server is not None and self.state is not SessionState.LOADING:
            self.server, self.config = None, self._own_config
            self.config_changed.emit(self.config)
        if self.state in (SessionState.READY, SessionState.DIED):
            self._set_state(SessionState.EMPTY)

    async def _give_back(self) -> None:
        async with self._one_at_a_time:
            self._watch.stop()
            engine, self._engine = self._engine, None
            if engine is not None:
                await self.off_thread(engine.close)
            await self.close_file()

    async def restart(self) -> bool:
        """The same model and config, or the same server, again, after a death."""
        if self.server is not None:
            return await self.connect_to(self.server)
        return await self.load(self.spec, self.config)

    async def begin(self, config: EngineConfig) -> bool:
        """Another config on the same weights, with a fresh trace. Refused while requests run."""
        engine = self._engine
        if engine is None or not self.ready:
            self.config = config
            self.config_changed.emit(config)
            return True
        async with self._one_at_a_time:
            try:
                trace = await self.off_thread(lambda: engine.begin(config))
            except (InvalidInput, RuntimeError) as error:
                self.config_refused.emit(str(error))
                return False
            await self.close_file()
        self.config = config
        self._set_trace(trace)
        self.config_changed.emit(config)
        return True

    # -- lending --------------------------------------------------------------------------------------------------

    async def lease(self) -> EngineLease:
        """Hands the engine out, until `take_back`. Raises InvalidInput while something else has need of it."""
        match self.state:
            case SessionState.LEASED:
                raise InvalidInput(LEASED_WORDS)
            case SessionState.LOADING:
                raise InvalidInput(tr("A model is loading; wait until it is there, or cancel the load."))
        if self.server is not None:
            raise InvalidInput(tr("This window is connected to a server. Load a model here first."))
        if self.busy:
            raise InvalidInput(tr("Requests run on the Play page. Stop them first."))
        if self.measuring is not None and self.measuring.running:
            raise InvalidInput(MEASURED_WORDS)
        self._watch.stop()
        engine, self._engine = self._engine, None
        lease = self._lease = EngineLease(self._loader.make, engine, self.spec)
        self._restore = None if self.state is SessionState.EMPTY else self.spec
        self._set_state(SessionState.LEASED)
        await self.close_file()
        return lease

    async def take_back(self) -> None:
        """The engine with the model and config it had; loads the model anew where another took its place."""
        lease, spec = self._lease, self._restore
        if lease is None:
            return
        keep = None if self.closing else spec
        engine: EngineFace | None = await self.off_thread(lambda: lease.end(keep, self.config))
        self._lease = None
        if lease.refused:
            self.config_refused.emit(lease.refused)
        if engine is not None:
            self._take(engine)
            return
        self._set_state(SessionState.EMPTY)
        if keep is not None:
            await self.load(keep, self.config)

    # -- requests -------------------------------------------------------------------------------------------------

    def send(self, submissions: Sequence[Submission]) -> asyncio.Task[list[int]]:
        """`submit`, begun now: the submit time is that of the call."""
        now = time.perf_counter()
        return self.start(self.submit([s if s.time is not None else replace(s, time=now) for s in submissions]))

    async def submit(self, submissions: Sequence[Submission]) -> list[int]:
        """The ids of the new requests: all of them or, after `submit_failed`, none."""
        engine = self._engine
        if engine is None or not self.ready:
            self.submit_failed.emit(self._why_not())
            return []
        try:
            async with self._one_at_a_time:
                if self.trace is not None:
                    await self._file.open(self.trace, self.spec.source)
            streams = await self.off_thread(lambda: engine.submit_many(list(submissions)))
        except (InvalidInput, RuntimeError) as error:
            self.submit_failed.emit(str(error))
            return []
        ids = [stream.request for stream in streams]
        self.submitted.emit(ids)
        return ids

    def _why_not(self) -> str:
        """Why no request is taken."""
        match self.state:
            case SessionState.LOADING:
                return tr("The model is still loading.")
            case SessionState.LEASED:
                return LEASED_WORDS
            case SessionState.DIED:
                return tr("The engine has died: restart it first.")
        return engine_missing() or tr("Load a model first.")

    def stop(self, requests: Iterable[int] | None = None) -> None:
        """Cancels these requests, or all; their texts stay."""
        if (link := self.link) is not None and link.observes:
            self.notice_raised.emit(link.observes)
        if self._engine is not None and self.state is not SessionState.DIED:
            self._engine.cancel(requests)

    def continue_chat(self, view: RequestView, text: str) -> asyncio.Task[list[int]]:
        """A next turn after a finished request."""
        return self.send([next_turn(view, text)])

    def regenerate(self, view: RequestView) -> asyncio.Task[list[int]]:
        return self.send([once_more(view)])

    # -- the end --------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Ends what runs, writes the trace to its end, and leaves no thread or process. Safe to call twice."""
        self.closing = True
        self.cancel_load()
        if self._lease is not None:
            self._lease.cancelled.set()
        self._watch.stop()
        await self._tasks.wait(20)
        await self.take_back()
        await self.unload()
        self._closed = True
        self._executor.shutdown(wait=True)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _set_state(self, state: SessionState) -> None:
        if state is not self.state:
            self.state = state
            self.state_changed.emit(state)

    def _set_trace(self, trace: Trace) -> None:
        self.trace = trace
        self.trace_changed.emit(trace)

    def _on_progress(self, status: LoadStatus) -> None:
        if self.state is SessionState.LOADING:
            self.load_progressed.emit(status)

    def _on_watch(self) -> None:
        engine = self._engine
        if engine is not None and self.server is not None and self.ready and engine.trace is not self.trace:
            self.start(self.close_file())
            self._set_trace(engine.trace)  # the server was restarted, or this window was too far behind
        if engine is None or engine.alive or not self.ready:
            return
        self._watch.stop()
        self._death, now = engine.error, time.monotonic()
        if engine.restart and now - self._restarted > AGAIN:
            self._restarted = now
            self.engine_restarts.emit(engine.error)
            self.start(self.restart())
            return
        self._set_state(SessionState.DIED)
        self.engine_died.emit(engine.error)
