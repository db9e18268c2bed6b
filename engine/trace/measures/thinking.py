"""What was thought in a run, and when answers began."""

from collections.abc import Iterable, Sequence

from engine.trace.records import Submitted
from engine.trace.thoughts import begins_amid
from engine.trace.trace import Trace


def thinking(submitted: Sequence[Submitted], texts: Iterable[str], trace: Trace) -> tuple[int, list[float]]:
    """How many tokens these requests thought, and each TTFO in seconds; no TTFO where nobody thinks. `texts` are all
    that was said: requests, which take time to be made of records, are looked at only where one may think."""
    if not (any("<" in text for text in texts) or any(begins_amid(s.text, s.params) for s in submitted)):
        return 0, []
    views = [view for s in submitted if (view := trace.requests.get(s.request)) is not None]
    thought = sum(sum(view.thoughts) for view in views)
    return thought, [ttfo for view in views if (ttfo := view.ttfo) is not None] if thought else []
