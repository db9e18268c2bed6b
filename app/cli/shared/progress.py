"""Progress on stderr, silent where that is no terminal."""

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from app.interrupts import interrupt_as_event
from app.session.loading.progress import COUNTED
from engine import Run
from engine.compare import LaneFailed, LaneFinished, LaneLoading, LaneStarted, RaceEvent, SweepEvent
from engine.jobs import JobDied, LoadCancelled, LoadProgress

REFRESH = 0.2  # seconds


class Bar:
    """A progress bar, for loads and for runs. Not `counted`: what is counted changes on the way; a share is shown."""

    def __init__(self, quiet: bool, counted: bool = True) -> None:
        from tqdm import tqdm

        form = None if counted else "{desc} {percentage:3.0f}%|{bar}| {elapsed}"
        off = True if quiet else None
        self._bar: Any = tqdm(total=1, disable=off, leave=False, unit="B", unit_scale=True, bar_format=form)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def loading(self, progress: LoadProgress) -> None:
        unit = "" if progress.stage in COUNTED else "B"
        self._show(progress.stage, progress.done, progress.total or 1, unit)

    def follow(self, run: Run, name: str = "") -> None:
        """Returns when the run is over."""
        while not run.done:
            self.running(run, name)
            run.wait(REFRESH)

    def running(self, run: Run, name: str = "") -> None:
        if self._bar.disable:
            return
        tokens = sum(len(s.tokens) for v in run.trace.requests.values() for s in v.samples)
        self._show(f"{name}{', ' if name else ''}{tokens:,} tokens", run.finished, run.total, " requests")

    def _show(self, words: str, done: int, total: int, unit: str) -> None:
        with self._lock:
            self._bar.unit, self._bar.unit_scale = unit, unit == "B"
            self._bar.set_description_str(words, refresh=False)
            self._bar.total, self._bar.n = total, done
            self._bar.refresh()


class LanesBar(Bar):
    """A bar for the lane runs of a race or a sweep, told by their events: `names` by lane, `repeats` of each."""

    def __init__(self, quiet: bool, names: tuple[str, ...], repeats: int) -> None:
        super().__init__(quiet)
        self._names, self._runs, self._repeats = names, len(names) * repeats, repeats
        self._played = 0
        self._run: tuple[Run, str] | None = None
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._refresh, name="progress", daemon=True)
        if not self._bar.disable:
            self._watch.start()

    def tell(self, event: RaceEvent | SweepEvent) -> None:
        match event:
            case LaneLoading():
                self.loading(event.progress)
            case LaneStarted():
                self._run = event.run, f"{self._played + 1} of {self._runs}: {self._names[event.lane]}"
            case LaneFinished() | LaneFailed():
                self._run = None
                self._played += 1
            case _:
                self._run = None

    def _refresh(self) -> None:
        while not self._over.wait(REFRESH):
            if (run := self._run) is not None:
                self.running(*run)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._watch.ident is not None:
            self._watch.join()
        super().__exit__()


Job = tuple[Bar, threading.Event]


class Stopped(Exception):
    """A command came to no result: why, and the exit status."""

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status


@contextmanager
def job_bar(quiet: bool, stopped: str, died: str = "", *, counted: bool = False) -> Iterator[Job]:
    """The bar of one long work, and the event that Ctrl+C sets. Raises Stopped where the work was stopped, with what is
    left of it, or where its process died, with what to do where memory ran out."""
    try:
        with interrupt_as_event() as interrupted, Bar(quiet, counted) as bar:
            yield bar, interrupted
    except LoadCancelled:
        raise Stopped(f"stopped; {stopped}", 130) from None
    except JobDied as error:
        raise Stopped(f"{error}; if memory ran out, {died}", 1) from error


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is; None where it is a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
