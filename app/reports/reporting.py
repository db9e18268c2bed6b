"""All that is kept of what happens, for as long as a window lives."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.reports.crash import CrashReport, left_behind, watched, write_report
from app.reports.log import Log, kept_log, last_lines
from app.reports.unexpected import Unexpected

LAST = 60  # lines of the log in a report


@dataclass(frozen=True)
class Reports:
    """`crashes` of earlier processes that nobody was told of yet; `logs` is the folder of the log's file;
    `write_facts` puts those into the report of this process, once the window has the time."""

    log: Log
    unexpected: Unexpected
    crashes: Sequence[CrashReport]
    folder: Path
    logs: Path
    facts: Callable[[], str]
    write_facts: Callable[[], None]

    def of_engine(self, words: str, stacks: str) -> CrashReport:
        """Keeps a report of an engine's death. Raises OSError."""
        text = "\n\n".join(part for part in (self.facts(), words, stacks, *self._last()) if part)
        return write_report(self.folder, text, time.time())

    def _last(self) -> list[str]:
        return ["the last of the log:\n" + "\n".join(map(str, self.log.since(0)[-LAST:]))]


@contextmanager
def reporting(data: Path, facts: Callable[[], str], *, log_file: bool) -> Iterator[Reports]:
    """Logs, hears what nobody else does, and leaves a report should the process end unasked."""
    folder, logs = data / "crashes", data / "logs"
    crashes = left_behind(folder, last_lines(logs, LAST))
    with kept_log(logs if log_file else None) as log:
        unexpected = Unexpected()

        def newest() -> list[str]:
            return list(map(str, log.since(0)[-LAST:]))

        with unexpected.heard(), watched(folder, facts, newest) as write_facts:
            yield Reports(log, unexpected, crashes, folder, logs, facts, write_facts)
