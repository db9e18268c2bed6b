"""How many are before a request that waits, by the order of admission. No Qt in here."""

from collections.abc import Iterable

from app.language import tr
from engine.trace import Header, RequestView, State

MADE_WAY = (State.PREEMPTED, State.SWAPPED)  # those come before all that never ran


def waiting_words(views: Iterable[RequestView], header: Header | None) -> dict[int, str]:
    """Of each request that waits and never ran, where it stands. Where prefixes decide, that changes with every step
    and the records do not tell it: then there is nothing."""
    if header is None or header.config.admission == "lpm":
        return {}
    context, before, waiting = header.model.context, 0, list[tuple[int, int]]()
    for view in views:
        state = view.state
        if state in MADE_WAY:
            before += 1
        elif state is State.WAITING:
            job = min(len(view.prompt_ids) + view.params.max_tokens, context)
            waiting.append((job if header.config.admission == "sjf" else 0, view.request))
    waiting.sort()
    return {request: _words(place) for place, (_, request) in enumerate(waiting, before)}


def _words(before: int) -> str:
    return tr("in the queue, {count:,} before it", count=before) if before else tr("the next in the queue")
