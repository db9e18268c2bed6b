"""A timeline's words and round numbers: its ticks, and what its tooltips say. No Qt in here."""

import math

import numpy as np

from app.inside.timeline.marks import MARK_WORDS, Mark
from app.inside.timeline.ranks import KINDS, RankTimes
from app.inside.timeline.runs import Cell
from app.inside.timeline.steps import PHASES, Row
from app.words import bytes_words, counted, graph_words
from engine.trace import Array, Kind

NAMED = 0.02  # phases of a smaller share of their step are told together


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
            what = f"prefill, {counted(cell.count, 'token')}"
        case Kind.DECODE if cell.drafted:
            kept = cell.count - cell.wasted - 1
            what = f"decoding, {cell.drafted:,} drafted: {max(0, kept):,} kept, {cell.wasted:,} thrown away"
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


def step_ticks(begin: float, end: float, count: float, numbers: Array) -> list[tuple[float, str]]:
    """At most about `count` places on the axis of steps, each with its step's number: "step 100", "200"."""
    first, last = max(0, math.ceil(begin)), min(len(numbers), math.floor(end) + 1)
    least = max(1.0, (end - begin) / max(count, 1.0))
    power = 10 ** math.floor(math.log10(least))
    gap = next(m * power for m in (1, 2, 5, 10) if m * power >= least)
    seen = numbers[first:last]
    places = np.flatnonzero(seen % gap == 0)
    words = [f"{number:,}" for number in seen[places].tolist()]
    if words:
        words[0] = f"step {words[0]}"
    return [(float(first + place), word) for place, word in zip(places.tolist(), words)]


def ms(seconds: float) -> str:
    """ "18.4", "0.62" of milliseconds."""
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def length_words(seconds: float) -> str:
    """ "18.4 ms", "1.25 s"."""
    return f"{ms(seconds)} ms" if seconds < 1 else f"{seconds:,.2f} s"


def step_words(row: Row) -> str:
    """A step in one line: "step 1,204 · 27 decode + 1 prefill of 96 · 18.4 ms: forward 16.9, sample 0.6"."""
    return f"step {row.step:,} · {rows_words(row)} · {length_words(row.ended - row.started)}{phase_words(row)}"


def rows_words(row: Row) -> str:
    """ "27 decode + 1 prefill of 96"."""
    parts = []
    if row.decode_rows:
        parts.append(f"{row.decode_rows:,} decode")
    if row.prefill_rows:
        parts.append(f"{row.prefill_rows:,} prefill of {row.tokens['prefill']:,}")
    if row.held_rows:
        parts.append(f"{row.held_rows:,} held")
    words = " + ".join(parts) or "nothing computed"
    if row.tokens["padding"]:
        words += f" + {row.tokens['padding']:,} padding"
    return words


def replayed_words(row: Row) -> str:
    """A line of its own on the graph that was replayed; empty where none was."""
    words = graph_words(row.graph, row.rows, 0 if row.decode_rows == row.computed else row.computed)
    return f"\n{words}" if words else ""


def phase_words(row: Row) -> str:
    """ ": forward 16.9, sample 0.6, other 0.3" in milliseconds, the longest first. Other: small phases, and what no
    phase accounts for; recording comes after the step."""
    length = row.ended - row.started
    known = sorted(((row.seconds[name], name) for name in PHASES if name != "record"), reverse=True)
    parts = [(seconds, name) for seconds, name in known if seconds >= max(NAMED * length, 5e-6)]
    if not parts:
        return ""
    other = length - sum(seconds for seconds, _ in parts)
    if other >= 5e-6:
        parts.append((other, "other"))
    return ": " + ", ".join(f"{name} {ms(seconds)}" for seconds, name in parts)


def token_words(row: Row, budget: int | None) -> str:
    """What a step was given, over several lines."""
    of = f" of a budget of {budget:,}" if budget else ""
    told = {"prefill": "of prompts", "decode": "decoded", "padding": "padding"}
    told["wasted"] = "thrown away or computed again"
    lines = [f"{row.tokens[name]:,} {what}" for name, what in told.items() if row.tokens[name]]
    return "\n".join([f"step {row.step:,} · {counted(row.computed, 'token')}{of}", *lines])


def rank_words(ranks: RankTimes, place: int, rank: int) -> str:
    """What a rank did in the step of a place: "rank 1: computing 1.2 ms, communicating 0.1 ms, waiting 0.4 ms"."""
    parts = ", ".join(f"{kind} {length_words(t)}" for kind, t in zip(KINDS, ranks.seconds(place, rank)))
    return f"rank {rank}: {parts}\nall ranks sent {bytes_words(ranks.sent(place))}"


def mark_words(kind: Mark, request: int, time: float, count: int) -> str:
    """ "request 12: prefix hit, 96 tokens kept · 3.412 s"."""
    what = MARK_WORDS[kind]
    if kind is Mark.PREFIX_HIT:
        what += f", {counted(count, 'token')} needed no computing"
    elif kind is Mark.SWAPPED_OUT:
        what = "preempted, its blocks swapped out"
    elif kind is Mark.SWAPPED_IN:
        what += f", {counted(count, 'block')}: nothing is computed again"
    return f"request {request:,}: {what} · {time:.3f} s"


def stall_words(request: int, begin: float, end: float, threshold: float) -> str:
    """What a stall's bracket means."""
    return (
        f"request {request:,}: no token for {length_words(end - begin)}, {begin:.3f}–{end:.3f} s\n"
        f"a stall: longer than {length_words(threshold)}"
    )
