"""How requests and their numbers are put into words: the same in every panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import FinishReason, RequestView, State

if TYPE_CHECKING:  # the command line says figures in the same words, and needs no Qt
    from PySide6.QtGui import QColor

    from app.theme import Theme


def state_words(view: RequestView) -> str:
    """The state in honest words: "queued", "prefill 96/412", "finished · stop", "error"."""
    match view.state:
        case State.PREFILL:
            return f"prefill {view.computed:,}/{len(view.prompt_ids) + len(view.tokens):,}"
        case State.FINISHED if view.reason is FinishReason.ERROR:
            return "error"
        case State.FINISHED if view.reason is FinishReason.CANCELLED:
            return "cancelled"
        case State.FINISHED if view.reason is not None:
            return f"finished · {view.reason.value}"
        case _:
            return view.state.value


def state_color(view: RequestView, theme: Theme) -> QColor:
    """The colour of the state's words. Colour is never the only sign: the words say the same."""
    match view.state:
        case State.PREFILL:
            return theme.accent
        case State.DECODE:
            return theme.good
        case State.PREEMPTED:
            return theme.warn
        case State.FINISHED if view.reason is FinishReason.ERROR:
            return theme.bad
        case _:
            return theme.secondary


def state_rank(view: RequestView) -> int:
    """The order in which states sort: running first, then waiting, then over."""
    order = (State.DECODE, State.PREFILL, State.PREEMPTED, State.WAITING, State.FINISHED)
    return order.index(view.state)


def title(view: RequestView) -> str:
    """What a person would call this request: its label, else its last user turn, on one line."""
    asked = next((m["content"] for m in reversed(view.messages) if m.get("role") == "user"), view.prompt)
    return " ".join((view.label or asked).split())


def duration(seconds: float) -> str:
    """Seconds in the unit that needs the fewest digits: "8.5 ms", "148 ms", "3.14 s", "2 min 05 s"."""
    if seconds < 0.00995:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60:,} min {int(seconds) % 60:02d} s"


def number(value: float) -> str:
    """A rate or count: "4.2" below ten, else whole, with thousands apart."""
    return f"{value:.1f}" if 0 < value < 9.95 else f"{value:,.0f}"


def tooltip(view: RequestView) -> str:
    """The prompt and the numbers of a card, each with its formula."""
    lines = [
        title(view)[:300],
        f"{len(view.prompt_ids):,} tokens in, {len(view.tokens):,} of {view.params.max_tokens:,} out",
    ]
    if view.ttft is not None:
        lines.append(f"TTFT {duration(view.ttft)} = first token − submit")
    rate = view.tokens_per_second
    if rate is not None:
        lines.append(f"{number(rate)} tok/s = (tokens − 1) ÷ (last − first token)")
    return "\n".join(lines)
