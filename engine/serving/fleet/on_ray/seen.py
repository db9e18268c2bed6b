"""Which replicas Ray has."""

import threading


class Seen:
    """The names of the replicas that run, as Ray tells this process; each is claimed by one place of a fleet."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._names: list[str] = []
        self._claimed: set[str] = set()

    def told(self, names: list[str]) -> None:
        with self._changed:
            self._names = names
            self._changed.notify_all()

    def runs(self, name: str) -> bool:
        with self._changed:
            return name in self._names

    def claim(self, cancelled: threading.Event, wait: float = 0.1) -> str | None:
        """One that nobody has, as soon as there is one; None where `cancelled` is set before."""
        with self._changed:
            while not cancelled.is_set():
                free = [name for name in self._names if name not in self._claimed]
                if free:
                    self._claimed.add(free[0])
                    return free[0]
                self._changed.wait(wait)
        return None

    def forget(self) -> None:
        """All of it: another deployment begins."""
        with self._changed:
            self._names, self._claimed = [], set()


SEEN = Seen()  # of this process: Ray makes its router itself
