"""Sets what the next steps of the session's engine may compute."""

from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any

from app.language import tr
from engine import InvalidInput
from engine.config import LiveBudget
from engine.core import EngineFace


class Steering:
    """`engine` is the one there is, None while there is none that takes requests; `off_thread` has work done in
    another thread."""

    def __init__(
        self, engine: Callable[[], EngineFace | None], off_thread: Callable[[Callable[[], LiveBudget]], Awaitable[Any]]
    ) -> None:
        self._engine, self._off_thread = engine, off_thread

    @property
    def budget(self) -> LiveBudget | None:
        """What is in force; None where there is no engine to tell."""
        engine = self._engine()
        return engine.budget if engine is not None else None

    async def set(self, budget: LiveBudget) -> str:
        """Has the engine's next steps keep within this budget. Returns why not, "" where they will."""
        engine = self._engine()
        if engine is None:
            return tr("Load a model first.")
        now, given = engine.budget, {field.name: getattr(budget, field.name) for field in fields(budget)}
        changes = {name: value for name, value in given.items() if value != getattr(now, name)}
        try:
            await self._off_thread(lambda: engine.steer(**changes))
        except (InvalidInput, RuntimeError) as error:
            return str(error)
        return ""
