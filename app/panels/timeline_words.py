"""A timeline's words and round numbers: its ticks, and what its tooltip says. No Qt in here."""

from __future__ import annotations

import math
from decimal import Decimal

from app.panels.timeline_cells import Cell
from engine import Kind


def nice_end(seconds: float) -> float:
    """The end of an axis that shows so many seconds: the next fifth of its power of ten, "31.2" on one to 32."""
    if not seconds > 0 or not math.isfinite(seconds):
        return 10.0
    step = Decimal(10) ** math.floor(math.log10(seconds)) / 5
    return float(math.ceil(Decimal(repr(seconds)) / step) * step)


def time_ticks(begin: float, end: float, count: float) -> list[tuple[float, str]]:
    """At most about `count` round seconds in `[begin, end]`, each with its words: "0 s", "2.5 s"."""
    least = (end - begin) / max(count, 1.0)
    power = math.floor(math.log10(least))
    step = next(m * Decimal(10) ** (power + p) for p in (0, 1) for m in (1, 2, 5) if m * 10.0 ** (power + p) >= least)
    decimals = max(0, -int(step.normalize().as_tuple().exponent))
    first, last = math.ceil(Decimal(repr(begin)) / step), math.floor(Decimal(repr(end)) / step)
    return [(float(i * step), f"{float(i * step):,.{decimals if i else 0}f} s") for i in range(first, last + 1)]


def seconds_words(begin: float, end: float) -> str:
    """ "3.412–3.431 s, 19 ms"."""
    length = end - begin
    long = f"{length * 1e3:.3g} ms" if length < 1 else f"{length:.2f} s"
    decimals = 4 if length < 0.001 else 3 if length < 1 else 2
    return f"{begin:.{decimals}f}–{end:.{decimals}f} s, {long}"


def cell_words(cell: Cell) -> str:
    """What a cell is, over three lines."""
    match cell.kind:
        case Kind.PREFILL:
            what = f"prefill, {cell.count:,} token{'s' if cell.count != 1 else ''}"
        case Kind.DECODE if cell.count > 1 and cell.wasted:
            what = f"decoding, {cell.count:,} tokens, {cell.wasted:,} of them again"
        case Kind.DECODE:
            what = "decoding" if cell.count == 1 else f"decoding, {cell.count:,} tokens"
        case Kind.HELD:
            what = "held: finished, and computed until the longest of its batch ends"
        case _:
            what = f"waits while step {cell.step:,} computes others"
    if cell.padding:
        what += f" + {cell.padding:,} padding"
    if cell.kind is not None and cell.kind != Kind.HELD and cell.wasted and cell.wasted >= cell.count:
        what += ", thrown away"
    step = f"step {cell.step:,} · " if cell.kind is not None else ""
    return f"request {cell.request:,} · slot {cell.slot + 1}\n{what}\n{step}{seconds_words(cell.begin, cell.end)}"
