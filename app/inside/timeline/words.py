"""A timeline's words and round numbers: its ticks, and what its tooltips say. No Qt in here."""

import math

import numpy as np

from app.inside.phases import PHASE_TITLES
from app.inside.timeline.marks import MARK_WORDS, Mark
from app.inside.timeline.ranks import RankTimes
from app.inside.timeline.runs import Cell
from app.inside.timeline.steps import PHASES, Row
from app.language import digits, tr, trn
from app.words import bytes_words, graph_words
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
    if cell.heard:
        return "\n".join(
            (
                tr("request {request:,} · row {row}", request=cell.request, row=cell.slot + 1),
                tr("its text came piece by piece; what the server computed for it is unknown from outside"),
                seconds_words(cell.begin, cell.end),
            )
        )
    match cell.kind:
        case Kind.PREFILL:
            what = trn("prefill, {count:,} token", "prefill, {count:,} tokens", cell.count)
        case Kind.DECODE if cell.drafted:
            what = tr(
                "decoding, {drafted:,} drafted: {kept:,} kept, {wasted:,} thrown away",
                drafted=cell.drafted,
                kept=max(0, cell.count - cell.wasted - 1),
                wasted=cell.wasted,
            )
        case Kind.DECODE if cell.count > 1 and cell.wasted:
            what = tr("decoding, {count:,} tokens, {again:,} of them again", count=cell.count, again=cell.wasted)
        case Kind.DECODE:
            what = trn("decoding", "decoding, {count:,} tokens", cell.count)
        case Kind.HELD:
            what = tr("held: finished, and computed until the longest of its batch ends")
        case _:
            what = tr("waits while step {step:,} computes others", step=cell.step)
    if cell.padding:
        what = tr("{work} + {padding:,} padding", work=what, padding=cell.padding)
    if cell.kind is not None and cell.kind != Kind.HELD and cell.wasted and cell.wasted >= cell.count:
        what = tr("{work}, thrown away", work=what)
    where = tr("request {request:,} · slot {slot}", request=cell.request, slot=cell.slot + 1)
    when = seconds_words(cell.begin, cell.end)
    return "\n".join((where, what, when if cell.kind is None else f"{step_title(cell.step)} · {when}"))


def step_ticks(begin: float, end: float, count: float, numbers: Array) -> list[tuple[float, str]]:
    """At most about `count` places on the axis of steps, each with its step's number: "step 100", "200"."""
    first, last = max(0, math.ceil(begin)), min(len(numbers), math.floor(end) + 1)
    least = max(1.0, (end - begin) / max(count, 1.0))
    power = 10 ** math.floor(math.log10(least))
    gap = next(m * power for m in (1, 2, 5, 10) if m * power >= least)
    seen = numbers[first:last]
    places = np.flatnonzero(seen % gap == 0)
    words = [digits(f"{number:,}") for number in seen[places].tolist()]
    if words:
        words[0] = step_title(int(seen[places[0]]))
    return [(float(first + place), word) for place, word in zip(places.tolist(), words)]


def ms(seconds: float) -> str:
    """ "18.4", "0.62" of milliseconds."""
    value = seconds * 1e3
    return digits(f"{value:,.0f}") if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def length_words(seconds: float) -> str:
    """ "18.4 ms", "1.25 s"."""
    return f"{ms(seconds)} ms" if seconds < 1 else digits(f"{seconds:,.2f} s")


def step_title(step: int) -> str:
    """ "step 1,204"."""
    return tr("step {step:,}", step=step)


def step_words(row: Row) -> str:
    """A step in one line: "step 1,204 · 27 decode + 1 prefill of 96 · 18.4 ms: forward 16.9, sample 0.6"."""
    return step_wordings(row)[0]


def step_wordings(row: Row) -> tuple[str, ...]:
    """The same from its longest wording to its shortest, which leave out the phases that took least."""
    whole = f"{step_title(row.step)} · {rows_words(row)} · {length_words(row.ended - row.started)}"
    phases = phase_words(row)
    cuts = [i for i, sign in enumerate(phases) if sign == ","]
    return whole + phases, *(f"{whole}{phases[:cut]} …" for cut in reversed(cuts)), whole


def rows_words(row: Row) -> str:
    """ "27 decode + 1 prefill of 96"."""
    parts = []
    if row.decode_rows:
        parts.append(tr("{count:,} decode", count=row.decode_rows))
    if row.prefill_rows and not row.tokens["prefill"]:
        parts.append(tr("{count:,} prefill under way", count=row.prefill_rows))
    elif row.prefill_rows:
        parts.append(tr("{count:,} prefill of {tokens:,}", count=row.prefill_rows, tokens=row.tokens["prefill"]))
    if row.held_rows:
        parts.append(tr("{count:,} held", count=row.held_rows))
    parts = parts or [tr("nothing computed")]
    if row.tokens["padding"]:
        parts.append(tr("{count:,} padding", count=row.tokens["padding"]))
    return " + ".join(parts)


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
    return ": " + ", ".join(f"{PHASE_TITLES[name]} {ms(seconds)}" for seconds, name in parts)


def token_words(row: Row, budget: int | None) -> str:
    """What a step was given, over several lines."""
    tokens = trn("{count:,} token", "{count:,} tokens", row.computed)
    if budget:
        tokens = tr("{tokens} of a budget of {budget:,}", tokens=tokens, budget=budget)
    told = {
        "prefill": tr("{count:,} of prompts", count=row.tokens["prefill"]),
        "decode": tr("{count:,} decoded", count=row.tokens["decode"]),
        "padding": tr("{count:,} padding", count=row.tokens["padding"]),
        "wasted": tr("{count:,} thrown away or computed again", count=row.tokens["wasted"]),
    }
    lines = [words for name, words in told.items() if row.tokens[name]]
    return "\n".join([f"{step_title(row.step)} · {tokens}", *lines])


def rank_words(ranks: RankTimes, place: int, rank: int, time: float = -1.0) -> str:
    """What a rank did in the step of a place: "rank 1: computing 1.2 ms, communicating 0.1 ms, waiting 0.4 ms"; of a
    pipeline also which micro-batch at that time."""
    if (micro := ranks.micro.at(place, rank, time)) is not None:
        return _stage_words(ranks, place, rank, *micro)
    computing, communicating, waiting = map(length_words, ranks.seconds(place, rank))
    spent = tr(
        "computing {computing}, communicating {communicating}, waiting {waiting}",
        computing=computing,
        communicating=communicating,
        waiting=waiting,
    )
    sent = tr("all ranks sent {size}", size=bytes_words(ranks.sent(place)))
    return f"{ranks.title(rank)}: {spent}\n{sent}"


def _stage_words(ranks: RankTimes, place: int, rank: int, number: int, count: int, length: float) -> str:
    here = tr("bubble: it has no micro-batch to compute")
    if number >= 0:
        here = tr("micro-batch {number} of {count}, {time}", number=number + 1, count=count, time=length_words(length))
    computing, communicating, waiting = ranks.seconds(place, rank)
    whole = max(computing + communicating + waiting, 1e-12)
    spent = tr(
        "in this step computing {computing}, handing on {communicating}, in bubbles {waiting} ({share})",
        computing=length_words(computing),
        communicating=length_words(communicating),
        waiting=length_words(waiting),
        share=f"{waiting / whole:.0%}",
    )
    sent = tr("all ranks sent {size}", size=bytes_words(ranks.sent(place)))
    return f"{ranks.title(rank)}: {here}\n{spent}\n{sent}"


def mark_words(kind: Mark, request: int, time: float, count: int) -> str:
    """ "request 12: prefix hit, 96 tokens kept · 3.412 s"."""
    what = MARK_WORDS[kind]
    if kind is Mark.PREFIX_HIT:
        what = trn(
            "prefix hit, {count:,} token needed no computing", "prefix hit, {count:,} tokens needed no computing", count
        )
    elif kind is Mark.FROM_HOST:
        what = trn(
            "prefix hit, {count:,} token needed no computing and came from host memory",
            "prefix hit, {count:,} tokens needed no computing, some or all of them came from host memory",
            count,
        )
    elif kind is Mark.SWAPPED_OUT:
        what = tr("preempted, its blocks swapped out")
    elif kind is Mark.SWAPPED_IN:
        what = trn(
            "swapped in, {count:,} block: nothing is computed again",
            "swapped in, {count:,} blocks: nothing is computed again",
            count,
        )
    return tr("request {request:,}: {what} · {time:.3f} s", request=request, what=what, time=time)


def stall_words(request: int, begin: float, end: float, threshold: float) -> str:
    """What a stall's bracket means."""
    return tr(
        "request {request:,}: no token for {length}, {begin:.3f}–{end:.3f} s\na stall: longer than {threshold}",
        request=request,
        length=length_words(end - begin),
        begin=begin,
        end=end,
        threshold=length_words(threshold),
    )
