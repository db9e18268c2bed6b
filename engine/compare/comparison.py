"""The table of a comparison, as data: a row a measure, a cell a lane; and its texts, CSV, JSON and Markdown."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from engine.compare.race import RaceResult
from engine.trace.measures.formulas import MEASURES, Measure, ratio_text
from engine.trace.measures.metrics import Metrics, measure
from engine.trace.measures.slo import Slo, seconds_text
from engine.trace.trace import Trace

OTHERS = Measure(
    "others",
    "CPU of other programs",
    "their share of the cores this engine may use, during the run",
    "%",
    "",
    "machine",
)


@dataclass(frozen=True, slots=True)
class MeasureCell:
    """One measure of one lane. `values` a repeat, in order; `ratio` is to the first lane, None where there is none."""

    values: tuple[float, ...]
    ratio: float | None = None

    @property
    def value(self) -> float | None:
        """The median of the repeats; None where the lane failed."""
        return median(self.values) if self.values else None

    @property
    def low(self) -> float | None:
        return min(self.values, default=None)

    @property
    def high(self) -> float | None:
        return max(self.values, default=None)

    @property
    def spread(self) -> float | None:
        """Half of what lies between the lowest and the highest repeat, as a share of the median; None for one, and
        where that is next to nothing of the largest."""
        if len(self.values) < 2 or not self.value or abs(self.value) < max(map(abs, self.values)) / 1000:
            return None
        return (max(self.values) - min(self.values)) / 2 / abs(self.value)

    def figures(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high, "ratio": self.ratio}


@dataclass(frozen=True, slots=True)
class MeasureRow:
    measure: Measure
    cells: tuple[MeasureCell, ...]

    def words(self) -> dict[str, str]:
        return {name: getattr(self.measure, name) for name in ("key", "name", "unit", "better", "formula")}

    def cell(self, lane: int) -> tuple[str, str, str]:
        """A cell's texts: its value, its spread and, behind the first lane, its ratio; empty where there is none."""
        cell = self.cells[lane]
        spread = f"±{100 * cell.spread:.1f} %" if cell.spread else ""
        ratio = ratio_text(cell.ratio) if lane > 0 and cell.ratio is not None else ""
        return self.measure.text(cell.value), spread, ratio

    @property
    def best(self) -> int | None:
        """The lane that is best, None where none is better than all others or better has no meaning."""
        values = [c.value for c in self.cells if c.value is not None]
        if not self.measure.better or len(values) < 2:
            return None
        best = (max if self.measure.better == "higher" else min)(values)
        return None if values.count(best) > 1 else [c.value for c in self.cells].index(best)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`names` of the lanes, each lane's `error` ("" where it was played) and what disturbed it ("" where nothing did),
    and a row for every measure there is."""

    names: tuple[str, ...]
    rows: tuple[MeasureRow, ...]
    errors: tuple[str, ...]
    disturbances: tuple[str, ...]
    outside: tuple[str, ...] = ()

    @property
    def disturbed(self) -> list[str]:
        """The names of lanes during which other programs took much of the CPU."""
        return [name for name, disturbance in zip(self.names, self.disturbances) if disturbance]

    @property
    def remarks(self) -> list[str]:
        """What is to be said below the table: "quick failed: no such model"."""
        lanes = list(zip(self.names, self.errors, self.disturbances))
        failed = [f"{name} failed: {error}" for name, error, _ in lanes if error]
        disturbed = [f"{name}: {disturbance}" for name, _, disturbance in lanes if disturbance]
        return failed + disturbed + [f"{name}: {words}" for name, words in zip(self.names, self.outside) if words]

    def row(self, key: str) -> MeasureRow | None:
        return next((row for row in self.rows if row.measure.key == key), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "lanes": [
                {"name": name, "error": error, "disturbance": disturbance}
                for name, error, disturbance in zip(self.names, self.errors, self.disturbances)
            ],
            "measures": [
                {**row.words(), "lanes": [cell.figures() | {"repeats": list(cell.values)} for cell in row.cells]}
                for row in self.rows
            ],
        }

    def json(self) -> str:
        return json_text(self.to_json())

    def csv(self) -> str:
        """A line a measure: its words, then value, lowest, highest and ratio of each lane; numbers as in the data."""
        words = ["measure", "name", "unit", "better", "formula"]
        lines = [words + [f"{n}{what}" for n in self.names for what in ("", " low", " high", " ratio")]]
        for row in self.rows:
            figures = [value for cell in row.cells for value in cell.figures().values()]
            lines.append([*row.words().values(), *("" if v is None else repr(v) for v in figures)])
        return csv_text(lines)

    def markdown(self) -> str:
        """A table whose lines are measures; the best lane of each is bold."""
        lines = ["| measure | " + " | ".join(map(escaped, self.names)) + " |", "|---|" + "---:|" * len(self.names)]
        for row in self.rows:
            cells = [" ".join(filter(None, row.cell(i))) for i in range(len(row.cells))]
            best = row.best
            cells = [f"**{t}**" if i == best else t for i, t in enumerate(cells)]
            lines.append(f"| {escaped(row.measure.name)} | " + " | ".join(cells) + " |")
        return "\n".join([*lines, *(f"\n{remark}" for remark in self.remarks)])

    def text(self, width: int | None = None) -> str:
        """The table in columns, for a terminal; lanes that do not fit in `width` stand below."""
        columns = [_column(name, [row.cell(i) for row in self.rows]) for i, name in enumerate(self.names)]
        names = max((len(row.measure.name) for row in self.rows), default=0)
        parts: list[list[list[str]]] = []
        for column in columns:
            if not parts or (width and names + sum(len(c[0]) for c in [*parts[-1], column]) > width):
                parts.append([])
            parts[-1].append(column)
        return "\n\n".join([*(self._lines(part, names) for part in parts), *self.remarks])

    def _lines(self, columns: Sequence[Sequence[str]], width: int) -> str:
        """Columns behind the measures' names, groups of measures apart."""
        lines = ["".join([" " * width, *(column[0] for column in columns)])]
        group = ""
        for i, row in enumerate(self.rows, 1):
            if row.measure.group != group:
                group = row.measure.group
                lines.append("")
            lines.append("".join([f"{row.measure.name:<{width}}", *(column[i] for column in columns)]).rstrip())
        return "\n".join(lines)


def csv_text(lines: Sequence[Sequence[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def json_text(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=1)


def escaped(text: str) -> str:
    """In a cell of Markdown."""
    return text.replace("|", "\\|")


def _column(name: str, cells: Sequence[tuple[str, str, str]]) -> list[str]:
    """A lane's lines under its name: value, spread and ratio, each right-aligned, and nothing for what no cell has."""
    widths = [max((len(cell[part]) for cell in cells), default=0) for part in range(3)]
    lines = ["".join(f"{text:>{width + 2}}" for text, width in zip(cell, widths) if width) for cell in cells]
    width = max(len(name) + 2, *map(len, lines)) if lines else len(name) + 2
    return [f"{line:>{width + 1}}" for line in [name, *lines]]


def compare(
    names: Sequence[str],
    metrics: Sequence[Sequence[Metrics]],
    errors: Sequence[str] | None = None,
    others: Sequence[Sequence[float]] = (),
    disturbances: Sequence[str] | None = None,
    outside: Sequence[str] = (),
) -> Comparison:
    """The table of lanes with the metrics of their repeats, and the share of the CPU that `others` took in each; a lane
    without any has empty cells."""
    told = {
        m: [tuple(v for each in lane if (v := m.read(each)) is not None) for lane in metrics] for m in MEASURES.values()
    }
    told[OTHERS] = list(map(tuple, others))
    rows = []
    for m, values in told.items():
        if any(values):
            rows.append(_row(m, values))
        if m.key in ("ttft.p99", "e2e.p99"):
            rows += _of_classes(m.key.removesuffix(".p99"), m, metrics)
    nothing = [""] * len(names)
    return Comparison(
        tuple(names), tuple(rows), tuple(errors or nothing), tuple(disturbances or nothing), tuple(outside)
    )


def _row(m: Measure, values: Sequence[tuple[float, ...]]) -> MeasureRow:
    base = median(values[0]) if values[0] and m is not OTHERS else 0.0
    return MeasureRow(m, tuple(MeasureCell(v, median(v) / base if v and base else None) for v in values))


def _of_classes(name: str, beside: Measure, metrics: Sequence[Sequence[Metrics]]) -> list[MeasureRow]:
    """Where requests have several priorities, a row for each: the median of what `name` is of those requests."""
    names = {each.priority: each.name for lane in metrics for one in lane for each in one.classes}
    rows = []
    for priority, title in sorted(names.items()):
        of = [
            tuple(getattr(each, name).p50 for one in lane for each in one.classes if each.priority == priority)
            for lane in metrics
        ]
        formula = f"{beside.formula.split(' of ', 1)[-1]} of priority {priority}, the median"
        key, words = f"{name}.p50.{priority}", f"{beside.name.rpartition(' ')[0]} p50, {title}"
        rows.append(_row(replace(beside, key=key, name=words, formula=formula), of))
    return rows


def compare_race(result: RaceResult, slo: Slo | None = None, price: float = 0.0) -> Comparison:
    """The table of a race: each lane over its finished repeats. `price` of an hour of what ran it, if it is known."""
    lanes = range(len(result.lanes))
    metrics = [[measure(trace, slo, price=price) for trace in result.traces(i)] for i in lanes]
    others = [
        [r.others for r in result.lane_runs if r.lane == i and r.finished and r.others is not None] for i in lanes
    ]
    errors, disturbances = [result.error(i) for i in lanes], [result.disturbance(i) for i in lanes]
    return compare(result.names, metrics, errors, others, disturbances, [_outside(result.traces(i)) for i in lanes])


def _outside(traces: Sequence[Trace]) -> str:
    """What is not known of a server's lane, and what the server cannot do, for people."""
    header = traces[0].header if traces else None
    if header is None or not header.outside:
        return ""
    unknown = "rows a step, waste, padding and KV memory are not known from outside"
    return "; ".join([unknown, *header.lacks])


def table(metrics: Metrics, name: str = "") -> str:
    """One run's metrics as text."""
    lines = [
        ["requests", f"{metrics.completed:,} of {metrics.requests:,} completed in {seconds_text(metrics.duration)}"],
        ["tokens", f"{metrics.prompt_tokens:,} in, {metrics.output_tokens:,} out"],
    ]
    if metrics.stalled_request is not None:
        lines.append(["longest stall", f"{seconds_text(metrics.longest_stall)}, in request {metrics.stalled_request}"])
    words = "\n".join(f"{what:<21}{said}" for what, said in lines)
    return f"{words}\n\n{compare([name], [[metrics]]).text().strip()}"
