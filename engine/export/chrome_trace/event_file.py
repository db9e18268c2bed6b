"""Trace events as text, one a line, written as they come. The format: "Trace Event Format" by the Chromium project."""

import json
from collections.abc import Mapping
from typing import Any, TextIO

MOST = 2_048  # events in memory
Args = Mapping[str, Any]


def nanoseconds(seconds: float) -> int:
    """None is before the beginning."""
    return max(0, round(seconds * 1e9))


def text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class EventFile:
    """Times are whole nanoseconds, so that slices that touch do not overlap; the format has them in microseconds.

    A slice must be written before what is bound to it by its time. Those of one thread may not overlap.
    """

    def __init__(self, out: TextIO, about: Args) -> None:
        self._out = out
        self._lines: list[str] = []
        self._threads = 0
        self._started = False
        out.write(f'{{"displayTimeUnit":"ms","otherData":{text(about)},"traceEvents":[\n')

    def _add(self, line: str) -> None:
        self._lines.append(line)
        if len(self._lines) >= MOST:
            self._flush()

    def _flush(self) -> None:
        if self._lines:
            self._out.write(("," if self._started else "") + ",\n".join(self._lines) + "\n")
            self._started = True
            self._lines.clear()

    def close(self) -> None:
        self._flush()
        self._out.write("]}\n")

    def process(self, pid: int, name: str) -> None:
        for what, args in (("process_name", {"name": name}), ("process_sort_index", {"sort_index": pid})):
            self._add(f'{{"ph":"M","pid":{pid},"tid":0,"ts":0,"name":"{what}","args":{text(args)}}}')

    def thread(self, pid: int, name: str) -> int:
        """A new track; its number is that of no other of the file."""
        self._threads += 1
        tid = 1_000 + self._threads
        for what, args in (("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": self._threads})):
            self._add(f'{{"ph":"M","pid":{pid},"tid":{tid},"ts":0,"name":"{what}","args":{text(args)}}}')
        return tid

    def slice(self, track: tuple[int, int], name: str, begin: int, end: int, args: str = "{}") -> None:
        """`track` is process and thread, `args` an object as text."""
        pid, tid = track
        self._add(
            f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{_micro(begin)},"dur":{_micro(end - begin)},'
            f'"name":{text(name)},"args":{args}}}'
        )

    def flow(self, phase: str, track: tuple[int, int], at: int, number: int) -> None:
        """`phase`: "s" begins a flow, "t" goes on, "f" ends it, each bound to the slice that is there at that time."""
        pid, tid = track
        bound = ',"bp":"e"' if phase == "f" else ""
        self._add(
            f'{{"ph":"{phase}","pid":{pid},"tid":{tid},"ts":{_micro(at)},"id":{number},"cat":"request",'
            f'"name":"request"{bound}}}'
        )

    def counter(self, pid: int, name: str, at: int, values: Args) -> None:
        self._add(f'{{"ph":"C","pid":{pid},"tid":0,"ts":{_micro(at)},"name":{text(name)},"args":{text(values)}}}')

    def instant(self, pid: int, name: str, at: int, args: Args) -> None:
        self._add(f'{{"ph":"i","s":"p","pid":{pid},"tid":0,"ts":{_micro(at)},"name":{text(name)},"args":{text(args)}}}')


def _micro(time: int) -> str:
    return f"{time // 1000}.{time % 1000:03d}"
