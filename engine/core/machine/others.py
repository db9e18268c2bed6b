"""What the programs beside ours take of the processor while we measure."""

import os
import time

try:
    import psutil
except ModuleNotFoundError:  # as in system.py
    psutil = None


class OthersMeter:
    """Counts from its making on. Ours are this process and all it started: an engine in a child process, and the
    window that hosts it. Time stolen by a hypervisor counts as others'."""

    def __init__(self) -> None:
        self._begun, self._busy, self._own = time.perf_counter(), _busy_seconds(), _own_seconds()

    def read(self) -> float | None:
        """The share of the cores we may use that others took, from 0 to 1; None where it cannot be told."""
        if psutil is None:
            return None
        wall = (time.perf_counter() - self._begun) * len(_cores())
        others = (_busy_seconds() - self._busy) - (_own_seconds() - self._own)
        return min(1.0, max(0.0, others / wall)) if wall > 0 else None


def _cores() -> list[int]:
    """Those this process may run on."""
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:
        return list(range(os.cpu_count() or 1))


def _busy_seconds() -> float:
    if psutil is None:
        return 0.0
    each = psutil.cpu_times(percpu=True)
    return sum(
        sum(each[core]) - sum(getattr(each[core], name, 0.0) for name in ("idle", "iowait", "guest", "guest_nice"))
        for core in _cores()
        if core < len(each)
    )


def _own_seconds() -> float:
    if psutil is None:
        return 0.0
    own = psutil.Process()
    times = own.cpu_times()
    spent = times.user + times.system + times.children_user + times.children_system  # children: those that ended
    for child in own.children(recursive=True):
        try:
            ran = child.cpu_times()
        except psutil.Error:  # it ended meanwhile
            continue
        spent += ran.user + ran.system + ran.children_user + ran.children_system
    return float(spent)
