"""What a tour asks of a scene's run or race, wherever it is played."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from PySide6.QtWidgets import QWidget

from engine import Trace

POLL = 0.02  # seconds
GivenUp = Callable[[], bool]


class Show(Protocol):
    """One scene on the page it belongs to."""

    def arrange(self) -> None:
        """Brings what the scene shows to the front."""
        ...

    async def play(self, given_up: GivenUp) -> str:
        """Plays it live, to its end or until it is given up; why it could not, in words, or ""."""
        ...

    async def recall(self, given_up: GivenUp) -> str:
        """Shows what was recorded of it, at its end; why it could not, in words, or ""."""
        ...

    def due(self) -> list[float]:
        """When each of the scene's points is due, as shares of what was played."""
        ...

    def traces(self) -> list[Trace]:
        """What was played, a lane each."""
        ...

    @property
    def share(self) -> float:
        """The moment on show, as a share of what was played."""
        ...

    @property
    def playing(self) -> bool:
        """Whether it is being played again."""
        ...

    def replay(self) -> None:
        """Plays it again from its start, in about as many seconds as the scene has."""
        ...

    def go(self, share: float) -> None:
        """Stands still there."""
        ...

    def toggle(self) -> None:
        """Plays on, or pauses."""
        ...

    def select(self, request: int) -> None:
        """Selects a request wherever it is shown; -1: none."""
        ...

    def place(self, name: str) -> QWidget | None:
        """What a point is on."""
        ...

    def reveal(self, name: str) -> None:
        """Brings what a point is on into sight; "": what the scene begins with."""
        ...

    def hand_over(self) -> None:
        """The controls are the person's, set as the scene has them."""
        ...

    def put_back(self) -> None:
        """What `arrange` hid is in sight again."""
        ...


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(POLL)
