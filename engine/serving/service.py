"""One engine as the routes see it."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from engine.config.checks import InvalidInput, check
from engine.config.submission import Submission
from engine.core.child.process import EngineDied
from engine.core.face import EngineFace
from engine.serving.admission import Admission
from engine.serving.delivery import Delivery
from engine.serving.errors import ApiError, refused
from engine.serving.exchange import Exchange, Outlet
from engine.serving.metrics import Observer
from engine.serving.settings import ServingSettings
from engine.serving.vocabulary import Vocabulary

CALLERS = 8  # threads that wait for the engine's answers
OPEN_CONTEXT = 4096  # tokens of an answer at most, where neither request nor model says

Found = TypeVar("Found")


class Service:
    """`model` is the name that requests ask for. `outlet` is told of those that are over. `draining`: it takes no more
    of them."""

    def __init__(self, engine: EngineFace, model: str, settings: ServingSettings, outlet: Outlet | None = None) -> None:
        check(model not in engine.card.adapters, "name", model, "an adapter is called so; give one of them another")
        self.engine, self.model, self.settings = engine, model, settings
        self.outlet = outlet or Outlet(())
        self.created = int(time.time())
        self.draining = False
        self.observer = Observer(engine.trace, model)
        self.delivery = Delivery(engine.trace)
        self.admission = Admission(engine.config.slots + settings.queue, settings.per_key)
        self._executor = ThreadPoolExecutor(CALLERS, "serving")
        self.vocabulary = Vocabulary(engine, self._executor)

    @property
    def fault(self) -> str:
        """Why it answers nothing; empty where it does."""
        if not self.engine.alive:
            return self.engine.error or "the engine is closed"
        return "the server is ending" if self.draining else ""

    @property
    def most_tokens(self) -> int:
        """Of an answer whose request does not say: what the context holds, where the pool holds a context."""
        context, pool = self.engine.card.context or OPEN_CONTEXT, self.engine.pool_tokens
        return context if pool >= context else max(1, pool // 2)

    def adapter(self, asked: str | None) -> str:
        """Whose name a request asks for as its model, "" for the model itself. Raises ApiError for neither."""
        names = self.engine.card.adapters
        if asked in (None, self.model):
            return ""
        if asked not in names:
            *most, last = map(repr, (self.model, *names))
            served = f"{', '.join(most)} and {last} are" if most else f"{last} is"
            raise ApiError(
                404, f"the model {str(asked)[:100]!r} is not served here; {served}", "model", "model_not_found"
            )
        return str(asked)

    @contextmanager
    def open(self, exchange: Exchange) -> Iterator[Exchange]:
        """It ends with the block: its places are given back, and the outlet is told of it."""
        with self.outlet.open(exchange):
            try:
                yield exchange
            finally:
                self.admission.give_back(exchange.caller, exchange.places)

    async def submit(self, exchanges: Sequence[Exchange], more: bool = False) -> None:
        """The one way of requests to the engine, whoever sent them: all of these of one caller, whose prompts and
        params are known, or, with ApiError, none. They have their streams and places then."""
        now, caller = time.perf_counter(), exchanges[0].caller
        submissions, counts = list[Submission](), list[int]()
        for one in exchanges:
            assert one.params is not None
            one.submitted = one.submitted or now
            submissions += [Submission(prompt, one.params, one.submitted, one.label) for prompt in one.prompts]
            counts.append(len(one.prompts) * one.params.branches)
        self.admission.take(caller, sum(counts))
        try:
            streams = iter(await self.ask(partial(self.engine.submit_many, submissions, more)))
        except BaseException:
            self.admission.give_back(caller, sum(counts))
            raise
        for one, places in zip(exchanges, counts, strict=True):
            one.places, one.streams = places, [next(streams) for _ in one.prompts]

    async def ask(self, call: Callable[[], Found]) -> Found:
        """What the engine answers, without waiting for it on the event loop. Raises ApiError."""
        try:
            if self.fault:
                raise EngineDied(self.fault)
            return await asyncio.get_running_loop().run_in_executor(self._executor, call)
        except InvalidInput as error:
            raise refused(error) if self.engine.alive else self._gone() from None
        except EngineDied:
            raise self._gone() from None

    async def aside(self, call: Callable[..., Found], *given: Any) -> Found:
        """What takes long enough to be kept off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call, *given)

    def _gone(self) -> ApiError:
        return ApiError(503, self.fault or "the engine ended", None, "unavailable", 1)

    def close(self) -> None:
        self._executor.shutdown()

    def described(self, adapter: str = "") -> dict[str, Any]:
        """The model, or one of its adapters, as /v1/models tells it."""
        about = {"id": adapter or self.model, "object": "model", "created": self.created, "owned_by": "batchscope"}
        about |= {"max_model_len": self.engine.card.context or None}
        return about | ({"parent": self.model} if adapter else {})
