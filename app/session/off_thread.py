"""What a collaborator of the session is handed to do its slow work with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class OffThread(Protocol):
    """Does work in a thread of the session. Raises what the work raises, CancelledError once the session is over."""

    async def __call__(self, work: Callable[[], T]) -> T: ...
