"""What the GPU bench found: tables as they grow, goals met or not, all of it kept in a file after each section."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.bench.gpu.stopwatch import Stopwatch

IN_PART = "done in part"
MARK = "rehearsal: these figures mean nothing"


class OutOfTime(BaseException):
    """A section has used up its seconds. No `except Exception` on its way may take it for a fault of what it tries."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure is to reach: at least, or at most where `below`. `unit` is "%" (of a share), "×" or words."""

    what: str
    goal: float
    reached: float
    unit: str = "%"
    below: bool = False

    @property
    def met(self) -> bool:
        return self.reached <= self.goal if self.below else self.reached >= self.goal

    @property
    def text(self) -> str:
        sign = "≤" if self.below else "≥"
        said = "reached" if self.met else "MISSED"
        return f"{said:8} {self._words(self.reached):>16}   {sign} {self._words(self.goal):14} {self.what}"

    def _words(self, value: float) -> str:
        match self.unit:
            case "%":
                return f"{100 * value:.1f} %"
            case "×":
                return f"× {value:.2f}"
            case unit:
                return f"{value:,.0f} {unit}"


Columns = Sequence[tuple[str, str]]  # headings, and the format of what stands below


def columns(text: str) -> Columns:
    """Columns as a line tells them: "batch 6d | of copy 8.0%", each heading before its format."""
    cells = (cell.strip().rpartition(" ") for cell in text.split("|"))
    return [(heading, form) for heading, _, form in cells]


class Table:
    """Prints its rows as they come, in columns, and keeps them; `grown` is called with each."""

    def __init__(self, title: str, columns: Columns, rehearsal: bool, grown: Callable[[], None]) -> None:
        self.title, self.columns, self._grown = title, columns, grown
        self.rows: list[dict[str, Any]] = []
        self._widths = [max(len(name), _width(spec)) for name, spec in columns]
        print(f"\n{title}" + (f" ({MARK})" if rehearsal else ""))
        print(" ".join(f"{name:>{width}}" for (name, _), width in zip(columns, self._widths)), flush=True)

    def add(self, *values: Any) -> None:
        """A row; None stands for what there is not."""
        cells = []
        for (_, spec), width, value in zip(self.columns, self._widths, values, strict=True):
            text = "–" if value is None else format(value, spec) if not isinstance(value, str) else value
            cells.append(f"{text:>{width}}")
        print(" ".join(cells).rstrip(), flush=True)
        self.rows.append(dict(zip([name for name, _ in self.columns], values)))
        self._grown()

    def say(self, words: str) -> None:
        """A line for a row that there is not, say."""
        print(f"  {words}", flush=True)
        self.rows.append({"note": words})
        self._grown()


def _width(spec: str) -> int:
    """That of the numbers of a format; of words it is the format itself."""
    return len(format(0, spec)) if spec[-1:] in "df%" else int(spec)


@dataclass
class Bench:
    """One run: the device's stopwatch, what each section found, and how long the one under way may still take."""

    watch: Stopwatch
    rehearsal: bool = False
    path: Path | None = None
    found: dict[str, Any] = field(default_factory=dict)
    _tables: list[Table] = field(default_factory=list)
    _goals: list[Goal] = field(default_factory=list)
    _omitted: list[str] = field(default_factory=list)  # what the section had no time for
    _running: str = ""  # the section under way
    limit: float = float("inf")  # its seconds
    _deadline: float = float("inf")

    @property
    def left(self) -> float:
        """Seconds that the section may still take."""
        return self._deadline - time.perf_counter()

    def fits(self, seconds: float, table: Table, what: str) -> bool:
        """Whether so many seconds are left; the table is told what is left out where they are not."""
        if self.left >= seconds:
            return True
        table.say(f"{what}: not measured, the section's time is over")
        self._omitted.append(what)
        return False

    def table(self, title: str, columns: Columns) -> Table:
        self._tables.append(Table(title, columns, self.rehearsal, self._keep_so_far))
        return self._tables[-1]

    def goal(self, what: str, goal: float, reached: float, unit: str = "%", below: bool = False) -> None:
        self._goals.append(Goal(what, goal, reached, unit, below))

    @contextmanager
    def section(self, name: str, seconds: float, most: float = 0.0) -> Iterator[None]:
        """Keeps what is found within it, whatever happens; raises what happens. It is to make do with `seconds`, and is
        interrupted after `most`."""
        self.limit, self._deadline = seconds, time.perf_counter() + seconds
        self._tables, self._goals, self._omitted, self._running = [], [], [], name
        begun = time.perf_counter()
        limits = {"limit": round(seconds, 1), "most": max(seconds, most)}
        self.keep(name, {"state": "running", "since": time.time(), **limits})
        state: dict[str, Any] = {"state": "done", "limit": limits["limit"]}
        try:
            yield
            if self._omitted:
                state |= {"state": IN_PART, "error": f"no time was left for {'; '.join(self._omitted)}"}
        except BaseException as error:
            state |= {"state": "failed", "error": f"{type(error).__name__}: {error}"}
            raise
        finally:
            state["seconds"] = round(time.perf_counter() - begun, 1)
            self._running = ""
            self.keep(name, state | self._so_far)

    @property
    def _so_far(self) -> dict[str, Any]:
        return {
            "tables": [{"title": table.title, "rows": table.rows} for table in self._tables],
            "goals": [{**asdict(goal), "met": goal.met} for goal in self._goals],
        }

    def _keep_so_far(self) -> None:
        if self._running:
            self.keep(self._running, self.sections[self._running] | self._so_far)

    @property
    def sections(self) -> dict[str, dict[str, Any]]:
        """What each section found, by name, with the `state` it is in: running, done, done in part, failed or left
        out."""
        found: dict[str, dict[str, Any]] = self.found.setdefault("sections", {})
        return found

    def keep(self, name: str, values: dict[str, Any]) -> None:
        """Also in the file, where there is one: a run that is killed leaves what it had."""
        self.sections[name] = values
        if self.path is not None:
            write(self.path, self.found)


def write(path: Path, values: dict[str, Any]) -> None:
    """Whole or not at all; under $OUT as well, where that is set, since nobody may be left to copy it there."""
    text = json.dumps(values, indent=1, default=str) + "\n"
    for folder in {path.parent.resolve(), Path(os.environ.get("OUT") or path.parent).resolve()}:
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f"{path.name}.new"
        new.write_text(text, encoding="utf-8")
        new.replace(folder / path.name)


def read(path: Path) -> dict[str, Any]:
    """What is in the file by now."""
    if not path.exists():
        return {"sections": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def note(path: Path, name: str, values: dict[str, Any]) -> None:
    """Puts what is known of a section into the file."""
    found = read(path)
    found["sections"][name] = values
    write(path, found)


def kept_rows(section: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of all tables of a section, as they lie in the file."""
    return [row for table in section.get("tables", ()) for row in table["rows"]]


def summary(found: dict[str, Any], rehearsal: bool = False) -> Iterator[str]:
    """Each goal with what was reached, and each section that failed: lines for the end, where they are read. Of a
    rehearsal how many goals there are."""
    if rehearsal:
        count = sum(len(values.get("goals", ())) for values in found["sections"].values())
        yield f"{count} goals were measured ({MARK})"
    for name, values in found["sections"].items():
        for goal in () if rehearsal else values.get("goals", ()):
            yield Goal(**{key: value for key, value in goal.items() if key != "met"}).text
        if values["state"] != "done":
            yield f"{values['state'].upper():8} {name}: {values.get('error', '')}"


def times(found: dict[str, Any]) -> Iterator[str]:
    """Lines with the seconds of each section, of those that it had, and of the whole."""
    for name, values in found["sections"].items():
        had = f"of {values['limit']:4.0f}" if "limit" in values else ""
        yield f"{name:14} {values.get('seconds', 0.0):6.1f} s {had:7}  {values['state']}"
    lacking = [name for name, values in found["sections"].items() if values["state"] != "done"]
    words = f"not done: {', '.join(lacking)}" if lacking else "all done"
    yield f"{'the whole':14} {found['seconds']:6.1f} s {'':7}  {words}"


Section = Callable[[Bench], None]
