"""Coroutines that run beside the window: each is kept until it is done."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs a coroutine and keeps a reference to its task until it is done."""
        task = asyncio.get_event_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def wait(self, seconds: float) -> None:
        """For all but the one that asks."""
        if others := self._tasks - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=seconds)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        """What a task raises is a defect of ours: told now, not when the task is thrown away."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler({"message": "a task failed", "exception": error, "task": task})
