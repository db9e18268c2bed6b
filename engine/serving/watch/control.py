"""Who may send, stop and steer: one window at a time."""

import time
from collections.abc import Callable
from dataclasses import dataclass

KEPT = 30.0  # seconds that control waits for a window whose connection was lost


@dataclass(slots=True)
class _Holder:
    client: str
    caller: str
    leave: Callable[[], None]  # ends its connection
    gone: float | None = None  # when that was lost

    @property
    def keeps(self) -> bool:
        return self.gone is None or time.monotonic() - self.gone < KEPT


class Control:
    """`names` are the callers who may have it; None: whoever can reach the server. On the event loop's thread alone."""

    def __init__(self, names: tuple[str, ...] | None) -> None:
        self._names = names
        self._holder: _Holder | None = None

    def take(self, client: str, caller: str, leave: Callable[[], None]) -> str:
        """Why `client` cannot have it; "" where it has it now. Its connection from before, if it has one, is ended."""
        if self._names is not None and caller not in self._names:
            who = f"the key {caller!r}" if caller else "this caller"
            return f"{who} may watch, not send; the server's --control names who may"
        holder = self._holder
        if holder is not None and holder.client != client and holder.keeps:
            whose = f"the window of {holder.caller!r}" if holder.caller else "another window"
            return f"{whose} has control of this server; a window that connects after it has ended can have it"
        if holder is not None and holder.gone is None:
            holder.leave()
        self._holder = _Holder(client, caller, leave)
        return ""

    def lose(self, leave: Callable[[], None], for_good: bool) -> None:
        """The connection of whoever took it with `leave` is over; control waits for it a while, unless it said so."""
        holder = self._holder
        if holder is not None and holder.leave == leave:
            if for_good:
                self._holder = None
            else:
                holder.gone = time.monotonic()
