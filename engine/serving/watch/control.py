"""Who may send, stop and steer: one window at a time."""

import time
from collections.abc import Callable
from typing import NamedTuple

KEPT = 30.0  # seconds that control waits for a window whose connection was lost


class Standing(NamedTuple):
    """How a window stands. `observes` says why it may only look, "" where it has control; `barred`: its key may never
    have that. `holder`: the name of the key whose window has control, "" where that has no name, None where nobody has
    it."""

    observes: str
    barred: bool
    holder: str | None


class Control:
    """`names` are the callers who may have it; None: whoever can reach the server. On the event loop's thread alone."""

    def __init__(self, names: tuple[str, ...] | None) -> None:
        self.names = names
        self._holder: Seat | None = None

    @property
    def holder(self) -> "Seat | None":
        """Who has it; a window whose connection was lost keeps it a while."""
        if self._holder is not None and not self._holder.keeps:
            self._holder = None
        return self._holder

    @holder.setter
    def holder(self, seat: "Seat | None") -> None:
        self._holder = seat


class Seat:
    """One connection of the window `client`, with the key of `caller`; `leave` ends it."""

    def __init__(self, control: Control, client: str, caller: str, leave: Callable[[], None]) -> None:
        self._control, self._client, self._caller, self._leave = control, client, caller, leave
        self._gone: float | None = None  # when the connection was lost

    @property
    def keeps(self) -> bool:
        return self._gone is None or time.monotonic() - self._gone < KEPT

    @property
    def standing(self) -> Standing:
        holder, names = self._control.holder, self._control.names
        whose = None if holder is None else holder._caller
        if holder is self:
            return Standing("", False, whose)
        if names is not None and self._caller not in names:
            who = f"the key {self._caller!r}" if self._caller else "this caller"
            return Standing(f"{who} may watch, not send; the server's --control names who may", True, whose)
        if holder is None:
            return Standing("nobody has control of this server; this window can take it", False, None)
        who = f"the window of {whose!r}" if whose else "another window"
        lost = "" if holder._gone is None else f"; its connection is lost, and control is kept for it for {KEPT:.0f} s"
        return Standing(f"{who} has control of this server{lost}", False, whose)

    def take(self) -> str:
        """Why this window cannot have control; "" where it has it now. A connection of it from before is ended."""
        standing, holder = self.standing, self._control.holder
        own = holder is not None and (holder._client, holder._caller) == (self._client, self._caller)
        if standing.barred or not (own or holder is None):
            return standing.observes
        if holder is not None and holder is not self and holder._gone is None:
            holder._leave()
        self._control.holder = self
        return ""

    def give_back(self) -> None:
        """Whoever comes first may have control now."""
        if self._control.holder is self:
            self._control.holder = None

    def lose(self, for_good: bool) -> None:
        """The connection is over; control waits for the window a while, unless it said so."""
        self._gone = time.monotonic()
        if for_good:
            self.give_back()
