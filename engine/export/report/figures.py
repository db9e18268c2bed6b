"""Charts as inline SVG, in the colours that the sheet around them has. What a pointer asks for lies in `data-…`."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10

import numpy as np

from engine.export.report.series import RunSeries, Shade
from engine.trace import Array
from engine.trace.measures.slo import seconds_text

WIDE, HALF = 920, 448  # pixels of the drawing
LEFT, RIGHT, TOP, BOTTOM = 46, 46, 8, 22
GOLDEN_ANGLE = 137.508
SHADES = {
    Shade.PREFILL: "prefill",
    Shade.DECODE: "decode",
    Shade.VERIFY: "verify drafts",
    Shade.HELD: "held: done, computed on",
    Shade.AGAIN: "thrown away",
}


@dataclass(frozen=True, slots=True)
class Line:
    """`role`: its class in the sheet, which has its colour."""

    name: str
    x: Array
    y: Array
    role: str


def timeline(series: RunSeries, duration: float, wide: int = WIDE) -> str:
    """Slots over time; `duration` is what the width stands for, so that several lie on one clock."""
    slots = max(series.slots, 1)
    high = min(16.0, max(3.0, 224 / slots))
    gap = 1.0 if high >= 5 else 0.0
    bottom = TOP + slots * high
    scale = (wide - LEFT - 8) / duration
    paths: dict[tuple[int, Shade], list[str]] = defaultdict(list)
    for cell in series.cells:
        x, w = LEFT + cell.begin * scale, max(0.6, (cell.end - cell.begin) * scale)
        paths[cell.request, cell.shade].append(
            f"M{x:.1f} {TOP + cell.slot * high:.1f}h{w:.1f}v{high - gap:.1f}h-{w:.1f}z"
        )
    waits = [
        f"M{LEFT + a.end * scale:.1f} {TOP + (a.slot + 0.5) * high - gap / 2:.1f}H{LEFT + b.begin * scale:.1f}"
        for a, b in pairwise(series.cells)
        if a.slot == b.slot and a.request == b.request and not a.left and b.begin > a.end
    ]
    drawn, over = [f'<path class="bs-wait" d="{"".join(waits)}"/>'], defaultdict[Shade, list[str]](list)
    for (request, shade), parts in paths.items():
        hue = request * GOLDEN_ANGLE % 360
        d = "".join(parts)
        drawn.append(
            f'<path class="bs-cell bs-{shade.name.lower()}" style="--hue:{hue:.0f}" data-request="{request}" '
            f'data-does="{SHADES[shade]}" d="{d}"><title>#{request} {SHADES[shade]}</title></path>'
        )
        if shade is not Shade.DECODE:
            over[shade].append(d)
    mark = hashlib.sha1("".join(drawn).encode()).hexdigest()[:8]
    patterns = {Shade.PREFILL: "hatch", Shade.HELD: "hatch", Shade.VERIFY: "dots", Shade.AGAIN: "cross"}
    for shade, parts in over.items():
        drawn.append(f'<path class="bs-over" fill="url(#{patterns[shade]}-{mark})" d="{"".join(parts)}"/>')
    every = max(1, ceil(14 / high))
    names = [
        f'<text x="{LEFT - 8}" y="{TOP + (slot + 0.5) * high + 3.5:.1f}" text-anchor="end">{slot}</text>'
        for slot in range(0, slots, max(every, ceil(slots / 8)))
    ]
    box = f'data-begin="0" data-end="{duration:.6g}" data-slots="{slots}" data-high="{high:.2f}"'
    axis = _time_axis(duration, bottom + 2, wide - LEFT - 8)
    shown = f"{series.slots} slots over {seconds_text(duration)}"
    body = f"{_patterns(mark)}{''.join(names)}{''.join(drawn)}{axis}"
    return _svg(wide, bottom + BOTTOM, body, f"Timeline: {shown}", box, "bs-timeline", bottom)


def legend(shades: Sequence[str], of: Mapping[str, str]) -> str:
    """`of`: a class by name."""
    items = (f'<span><i class="{of[name]}"></i>{escape(name)}</span>' for name in shades)
    return f'<p class="bs-legend">{"".join(items)}</p>'


def shades_of(series: Sequence[RunSeries]) -> list[Shade]:
    """Those that any of the timelines shows, as a legend names them."""
    shown = {cell.shade for each in series for cell in each.cells}
    return [shade for shade in SHADES if shade in shown]


def lines(
    said: str, given: Sequence[Line], duration: float, *, stacked: bool = False, steps: bool = False, ends: bool = True
) -> str:
    """Lines over time, or areas on each other; from 0 on. `ends`: the last value stands at a line's end."""
    given = [line for line in given if len(line.x)]
    tops: list[Array] = []
    for line in given:
        tops.append(line.y + tops[-1] if stacked and tops else line.y.astype(float))
    most = max((float(top.max()) for top in tops), default=0.0) or 1.0
    ticks = _ticks(most)
    most = max(most, ticks[-1])
    width, high = HALF - LEFT - RIGHT, 132
    drawn, below = [], [(line.x, np.zeros(len(line.x))) for line in given[:1]]
    for line, top in zip(given, tops):
        x = LEFT + line.x / duration * width
        y = TOP + high * (1 - top / most)
        path = _path(x, y, steps)
        if stacked:
            floor_x, floor_y = LEFT + below[-1][0] / duration * width, TOP + high * (1 - below[-1][1] / most)
            back = "".join(f"L{a:.1f} {b:.1f}" for a, b in zip(floor_x[::-1], floor_y[::-1]))
            drawn.append(f'<path class="bs-area {line.role}" d="{path}{back}z"/>')
            below.append((line.x, top))
        else:
            drawn.append(f'<path class="bs-line {line.role}" d="{path}"/>')
    last = [] if stacked or not ends else [(TOP + high * (1 - top[-1] / most), line) for line, top in zip(given, tops)]
    drawn += [
        f'<text class="bs-last {line.role}" x="{HALF - RIGHT + 6}" y="{y + 4:.1f}">{_short(line.y[-1])}</text>'
        for y, line in _apart(last, TOP + high)
    ]
    axis = _value_axis(ticks, most, high) + _time_axis(duration, TOP + high + 2, width)
    box = f'data-begin="0" data-end="{duration:.6g}" data-lines="{_data(given)}"'
    return _svg(HALF, TOP + high + BOTTOM, "".join(drawn) + axis, said, box, "", TOP + high)


def shares(said: str, given: Sequence[tuple[str, Array, str]]) -> str:
    """Of each sample (seconds), the share that is at most so long; the seconds lie on a logarithmic axis."""
    given = [(name, np.sort(values[values > 0]), role) for name, values, role in given]
    given = [each for each in given if len(each[1])]
    if not given:
        return ""
    low = floor(log10(min(values[0] for _, values, _ in given)) * 2) / 2
    high_end = max(ceil(log10(max(values[-1] for _, values, _ in given)) * 2) / 2, low + 0.5)
    width, high = HALF - LEFT - RIGHT, 132
    drawn, told = [], []
    for name, values, role in given:
        share = np.arange(1, len(values) + 1) / len(values)
        if len(values) > 200:
            chosen = np.unique(np.linspace(0, len(values) - 1, 200).astype(np.int64))
            values, share = values[chosen], share[chosen]
        x = LEFT + (np.log10(values) - low) / (high_end - low) * width
        y = TOP + high * (1 - share)
        drawn.append(f'<path class="bs-line {role}" d="M{x[0]:.1f} {TOP + high:.1f}L{_path(x, y, True)[1:]}"/>')
        told.append(Line(name, np.log10(values), share * 100, role))
    decades = range(ceil(low), floor(high_end) + 1)
    marks: list[tuple[float, str]] = [(decade, _seconds(10.0**decade)) for decade in decades]
    if len(marks) < 2:
        marks = [(log10(v), _seconds(v)) for v in (10.0**low, 10.0 ** ((low + high_end) / 2), 10.0**high_end)]
    axis = "".join(
        f'<text x="{LEFT + (at - low) / (high_end - low) * width:.1f}" y="{TOP + high + 16}" '
        f'text-anchor="middle">{words}</text>'
        for at, words in marks
    )
    axis += "".join(
        f'<text x="{LEFT - 8}" y="{TOP + high * (1 - share) + 4:.1f}" text-anchor="end">{100 * share:.0f} %</text>'
        for share in (0.0, 0.5, 1.0)
    )
    axis += f'<path class="bs-axis" d="M{LEFT} {TOP + high}h{width}"/>'
    box = f'data-begin="{low:.6g}" data-end="{high_end:.6g}" data-scale="log" data-lines="{_data(told)}"'
    return _svg(HALF, TOP + high + BOTTOM, "".join(drawn) + axis, said, box, "", TOP + high)


# -- pieces ---------------------------------------------------------------------------------------------------------


def _svg(wide: int, high: float, body: str, said: str, box: str, role: str, foot: float) -> str:
    cursor = f'<path class="bs-cursor" d="M0 {TOP}V{foot:.1f}"/>'
    right = RIGHT if wide == HALF else 8
    return (
        f'<svg class="bs-chart {role}" viewBox="0 0 {wide} {high:.0f}" role="img" aria-label="{escape(said)}" '
        f'data-left="{LEFT}" data-right="{wide - right}" data-top="{TOP}" {box}>{body}{cursor}</svg>'
    )


def _patterns(mark: str) -> str:
    def pattern(name: str, size: int, inside: str) -> str:
        return (
            f'<pattern id="{name}-{mark}" width="{size}" height="{size}" patternUnits="userSpaceOnUse" '
            f'class="bs-pattern">{inside}</pattern>'
        )

    return (
        "<defs>"
        + pattern("hatch", 5, '<path d="M-1 6L6 -1M-1 1L1 -1M4 6L6 4"/>')
        + pattern("dots", 4, '<circle cx="2" cy="2" r=".9"/>')
        + pattern("cross", 5, '<path d="M0 5L5 0M0 0L5 5"/>')
        + "</defs>"
    )


def _path(x: Array, y: Array, steps: bool) -> str:
    points = list(zip(x.tolist(), y.tolist()))
    text = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for a, b in points[1:]:
        text += f"H{a:.1f}V{b:.1f}" if steps else f"L{a:.1f} {b:.1f}"
    return text


def _data(given: Sequence[Line]) -> str:
    told = [
        {"name": line.name, "x": [_figure(v) for v in line.x.tolist()], "y": [_figure(v) for v in line.y.tolist()]}
        for line in given
    ]
    return escape(json.dumps(told, separators=(",", ":")))


def _figure(value: float) -> float:
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() else rounded


def _ticks(most: float) -> list[float]:
    """Three, the last of them round: 0, half, all."""
    power = 10.0 ** floor(log10(most))
    top = next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10) if step * power >= most * 0.999)
    return [0.0, top / 2, top]


def _value_axis(ticks: Sequence[float], most: float, high: float) -> str:
    return "".join(
        f'<text x="{LEFT - 8}" y="{TOP + high * (1 - tick / most) + 4:.1f}" text-anchor="end">{_short(tick)}</text>'
        for tick in ticks
    )


def _time_axis(duration: float, y: float, width: float) -> str:
    power = 10.0 ** floor(log10(duration))
    step = next(s * power for s in (0.2, 0.25, 0.5, 1, 2, 2.5, 5) if duration / (s * power) <= 5)
    say: Callable[[float], str] = _seconds
    marks = np.arange(0, duration * 1.0001, step)
    text = f'<path class="bs-axis" d="M{LEFT} {y - 2:.1f}h{width}"/>'
    for at in marks.tolist():
        text += f'<text x="{LEFT + at / duration * width:.1f}" y="{y + 14:.1f}" text-anchor="middle">{say(at)}</text>'
    return text


def _seconds(seconds: float) -> str:
    if seconds == 0:
        return "0"
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{seconds * 1e3:.3g} ms"


def _short(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= 10 * size or (value >= size and value % (size / 10) == 0):
            return f"{value / size:.3g}{unit}"
    return f"{value:,.0f}" if value >= 10 or float(value).is_integer() else f"{value:.1f}"


def _apart(ends: Sequence[tuple[float, Line]], foot: float) -> list[tuple[float, Line]]:
    """Labels that would lie on each other, moved apart; none below the foot."""
    placed: list[tuple[float, Line]] = []
    for y, line in sorted(ends, key=lambda each: each[0]):
        placed.append((max(y, placed[-1][0] + 13) if placed else y, line))
    up = max(0.0, placed[-1][0] - foot) if placed else 0.0
    return [(y - up, line) for y, line in placed]
