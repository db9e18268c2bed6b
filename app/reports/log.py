"""What the window and its engine log: the newest lines in memory, and a file that is rotated."""

import logging
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from logging.handlers import RotatingFileHandler
from pathlib import Path
from time import localtime, strftime

MOST = 5_000  # lines in memory
FILE, FILE_BYTES, OLDER_FILES = "batchscope.log", 1 << 20, 3
HERE = "MainProcess"  # how Python names the process that has the window


@dataclass(frozen=True, slots=True)
class LogLine:
    """`time` in seconds since the epoch; `details` what follows the first line of a message, a traceback say."""

    number: int
    time: float
    level: int
    process: str
    source: str
    text: str
    details: str

    def __str__(self) -> str:
        when = f"{strftime('%Y-%m-%d %H:%M:%S', localtime(self.time))}.{int(self.time % 1 * 1e3):03d}"
        line = f"{when}  {level_word(self.level):<7}  {self.process}  {self.source}: {self.text}"
        return f"{line}\n{self.details}" if self.details else line


def level_word(level: int) -> str:
    """ "info", "warning", "error"; what stops the process is an error too."""
    return {logging.CRITICAL: "error"}.get(level, logging.getLevelName(level).lower())


class Log(logging.Handler):
    """The newest lines, from whatever thread; they are read by their numbers."""

    def __init__(self, most: int = MOST) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[LogLine] = deque(maxlen=most)
        self._guard = threading.Lock()
        self.count = 0  # lines ever written
        self._file: _File | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text, _, details = self.format(record).partition("\n")
        except Exception:  # arguments that do not fit the message: whoever logs is not to fail by it
            text, details = str(record.msg), ""
        process = "window" if record.processName in (HERE, None) else str(record.processName)
        with self._guard:
            line = LogLine(self.count, record.created, record.levelno, process, record.name, text, details)
            self._lines.append(line)
            self.count += 1

    def keep_file(self, folder: Path | None) -> None:
        """Writes a file in this folder from now on; None: no file."""
        root = logging.getLogger()
        if self._file is not None:
            root.removeHandler(self._file)
            self._file.close()
            self._file = None
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._file = _file_in(folder)
                root.addHandler(self._file)
            except OSError as error:
                logging.getLogger(__name__).warning("no log file is kept: %s", error)

    def since(self, number: int) -> list[LogLine]:
        """The lines from this number on that are still there."""
        with self._guard:
            first = self.count - len(self._lines)
            return list(islice(self._lines, max(0, number - first), None))


class _File(RotatingFileHandler):
    """A disk that is full costs the file its lines, and nobody else anything."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def log_file(folder: Path) -> Path:
    return folder / FILE


def last_lines(folder: Path, count: int) -> list[str]:
    """The last lines of the file, none where there is no file."""
    try:
        return log_file(folder).read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
    except OSError:
        return []


@contextmanager
def kept_log(folder: Path | None) -> Iterator[Log]:
    """Everything that is logged, warnings of libraries too; in a file of `folder` as well, where one is given."""
    log, root = Log(), logging.getLogger()
    before = root.level, logging.raiseExceptions
    aloud = logging.StreamHandler(sys.stderr)
    aloud.setLevel(logging.WARNING)
    for handler in (log, aloud):
        root.addHandler(handler)
    log.keep_file(folder)
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    logging.raiseExceptions = False
    try:
        yield log
    finally:
        logging.captureWarnings(False)
        log.keep_file(None)
        for handler in (log, aloud):
            root.removeHandler(handler)
            handler.close()
        root.setLevel(before[0])
        logging.raiseExceptions = before[1]


def _file_in(folder: Path) -> _File:
    handler = _File(log_file(folder), maxBytes=FILE_BYTES, backupCount=OLDER_FILES, encoding="utf-8", delay=False)
    words = "%(asctime)s %(levelname)-8s %(processName)s %(name)s: %(message)s"
    handler.setFormatter(logging.Formatter(words))
    return handler
