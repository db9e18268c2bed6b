"""How many are before a request that waits, by the order of admission. No Qt in here."""

from collections.abc import Collection

from app.language import tr
from engine.trace import Header, RequestView, State

MADE_WAY = (State.PREEMPTED, State.SWAPPED)  # those come before all that never ran


def waiting_words(views: Collection[RequestView], header: Header | None, wanted: Collection[int]) -> dict[int, str]:
    """Of those of the requests `wanted` that wait and never ran, where they stand. Where prefixes decide, that changes
    with every step and the records do not tell it: then there is nothing."""
    if header is None or header.config.admission == "lpm":
        return {}
    away = sum(1 for view in views if view.state in MADE_WAY)
    waiting = [view for view in views if view.state is State.WAITING]
    if header.config.admission == "sjf":
        most = header.model.context
        waiting.sort(key=lambda view: min(len(view.prompt_ids) + view.params.max_tokens, most))
    elif header.config.admission == "priority":
        waiting.sort(key=lambda view: view.params.priority)
    return {
        view.request: tr("in the queue, {count:,} before it", count=before) if before else tr("the next in the queue")
        for before, view in enumerate(waiting, away)
        if view.request in wanted
    }
