"""A compression and its effect in words, for the window and the command line. No Qt in here."""

from collections.abc import Sequence
from itertools import groupby
from statistics import median

from app.language import digits, tr
from engine.compression import Effect, Piece

Row = tuple[str, str, str, str]  # what, of the original, of the compressed prompt, and the change


def head() -> Row:
    return "", tr("original"), tr("compressed"), ""


def bound_words() -> str:
    """What the divergence is, without a full stop."""
    return tr(
        "KL(original || compressed) of the next token, both prompts followed by the original's answer: taken over the "
        "likeliest tokens of both and all others as one, so that it is a lower bound (data processing inequality)"
    )


def runs_of(pieces: Sequence[Piece], kept: Sequence[bool]) -> list[tuple[str, bool]]:
    """The text in stretches that stayed or did not, message after message with an empty line between them."""
    found: list[tuple[str, bool]] = []
    before = pieces[0].message if pieces else 0
    for (message, stays), these in groupby(zip(pieces, kept, strict=True), key=lambda pair: (pair[0].message, pair[1])):
        text = "".join(piece.text for piece, _ in these)
        if message != before:
            found.append(("\n\n", True))
            before = message
        found.append((text, stays))
    return found


def rows_of(effect: Effect) -> list[Row]:
    """The table of what it buys and costs."""
    before, after = effect.before, effect.after
    ttft, prefill = median(before.ttft), median(before.prefill)
    short_ttft, short_prefill = median(after.ttft), median(after.prefill)
    rows: list[Row] = [
        (tr("prompt tokens"), f"{before.tokens:,}", f"{after.tokens:,}", _ratio(after.tokens, before.tokens)),
        (tr("time to first token"), _ms(ttft), _ms(short_ttft), _ratio(short_ttft, ttft)),
        (tr("prefill"), _ms(prefill), _ms(short_prefill), _ratio(short_prefill, prefill)),
    ]
    longer = max(len(before.token_ids), len(after.token_ids))
    same = tr("{front} of {all}", front=effect.front, all=longer)
    in_all = tr("{percent:.0f} % in all", percent=100 * effect.agreement)
    rows.append((tr("answer alike up to token"), "", same, in_all))
    over = tr("over {count} tokens", count=len(effect.divergence))
    rows.append((tr("KL from the original"), "", f"≥ {effect.kl:.3g} nats", over))
    return rows


def note_words(effect: Effect) -> str:
    """How it was measured: a number is never alone."""
    rounds = len(effect.before.ttft)
    sides = ((_ms(min(side.ttft)), _ms(max(side.ttft))) for side in (effect.before, effect.after))
    spread = ", ".join(tr("{low} to {high}", low=low, high=high) for low, high in sides)
    return tr(
        "Times: medians of {rounds} in turns ({spread}), nothing else running, no prefix from the cache.",
        rounds=rounds,
        spread=spread,
    )


def _ratio(one: float, other: float) -> str:
    return f"× {one / other:.2f}" if other else ""


def _ms(seconds: float) -> str:
    return digits(f"{seconds * 1e3:,.1f} ms") if seconds < 10 else digits(f"{seconds:,.2f} s")
