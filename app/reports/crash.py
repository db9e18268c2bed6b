"""A text for every end that was not asked for. It stays in its folder until its owner does something with it.

While a process lives, its report has a locked file, into which the interpreter writes its stacks should it abort; a
file that nobody locks any more is of a process that ended without a word.
"""

import contextlib
import faulthandler
import fcntl
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import localtime, strftime

from app.language import tr
from app.reports.private import without_names

RUNNING, SUFFIX = "running-", ".txt"
KEPT = 20  # reports, the newest
NO_TRACE = tr("it left no trace: it was killed, or the machine went down")
FATAL = re.compile(r"^Fatal Python error: (.+)$", re.M)
RAISED = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True)
class CrashReport:
    """`why` in a line; `ended` in seconds since the epoch."""

    path: Path
    ended: float
    why: str
    text: str


@contextmanager
def watched(folder: Path, facts: Callable[[], str], lines: Callable[[], Sequence[str]]) -> Iterator[Callable[[], None]]:
    """While this lasts, whatever ends the process leaves a report in the folder: where Python can still say them, with
    the last `lines` of the log. What it gives writes the `facts` down, which takes a moment; they are in no report of
    an interpreter that aborts before. Nothing is left of an end that was asked for."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{RUNNING}{os.getpid()}{SUFFIX}"
        file = path.open("w+", encoding="utf-8")
    except OSError:  # a folder that cannot be written to: there will be no report
        yield lambda: None
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        written = False

        def write_facts() -> None:
            nonlocal written
            if not written:
                written = True
                file.write(without_names(facts()).rstrip() + "\n\n")
                file.flush()

        before = faulthandler.is_enabled()
        faulthandler.enable(file)
        try:
            yield write_facts
        except (KeyboardInterrupt, SystemExit):
            path.unlink(missing_ok=True)
            raise
        except BaseException as error:
            write_facts()
            told = [*traceback.format_exception(error), "\n", *(f"{line}\n" for line in lines())]
            file.write(without_names("".join(told)))
            file.flush()
            raise
        else:
            path.unlink(missing_ok=True)
        finally:
            faulthandler.disable()
            if before:
                faulthandler.enable()


def left_behind(folder: Path, lines: Sequence[str]) -> list[CrashReport]:
    """The reports of processes that are gone since this was asked last, oldest first. `lines` are the last that were
    logged: they are added to the reports."""
    found = []
    for path in sorted(folder.glob(f"{RUNNING}*{SUFFIX}")):
        with contextlib.suppress(OSError), path.open("r+", encoding="utf-8", errors="replace") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: it lives
            text, ended = without_names(file.read()).rstrip(), path.stat().st_mtime
            if lines and RAISED not in text:
                text += "\n\nthe last of the log:\n" + without_names("\n".join(lines))
            kept = write_report(folder, text, ended)
            path.unlink()
            found.append(kept)
    return found


def write_report(folder: Path, text: str, ended: float) -> CrashReport:
    """Keeps a report; the oldest go. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    stem, count = f"crash {strftime('%Y-%m-%d %H.%M.%S', localtime(ended))}", 2
    path = folder / f"{stem}{SUFFIX}"
    while path.exists():
        path, count = folder / f"{stem} {count}{SUFFIX}", count + 1
    text = without_names(text).rstrip() + "\n"
    path.write_text(text, encoding="utf-8")
    os.utime(path, (ended, ended))
    for old in sorted(folder.glob(f"crash *{SUFFIX}"))[:-KEPT]:
        old.unlink(missing_ok=True)
    return CrashReport(path, ended, why_of(text), text)


def why_of(text: str) -> str:
    """What a report says happened: the signal, or the exception."""
    if fatal := FATAL.search(text):
        return fatal[1]
    if RAISED in text:
        after = text[text.rindex(RAISED) :].splitlines()[1:]
        said = next((line for line in after if line and not line[0].isspace()), "")
        return said or NO_TRACE
    return NO_TRACE
