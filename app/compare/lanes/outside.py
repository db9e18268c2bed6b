"""What is said of a request of a lane that is a server: what its client saw, and what nobody but the server knows."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from statistics import median

from app.inside.timeline.runs import Cell
from app.inside.timeline.words import cell_words, seconds_words
from app.language import tr, trn
from app.words import duration, state_words
from engine.trace import RequestView, SampleView

NOT_KNOWN = tr("unknown from outside: its steps, its prefill, what was computed beside it, and the memory that it held")


def outside_words(cell: Cell, requests: Mapping[int, RequestView], origin: float) -> str:
    """Of the request under the pointer, as far as `requests` know it; `origin` is the lane's zero in their seconds."""
    view = requests.get(cell.request)
    if view is None:
        return cell_words(cell)
    sample = next((one for one in view.samples if one.slot == cell.slot), view.samples[0])
    told = {"request": cell.request, "row": cell.slot + 1}
    title = tr("request {request:,} · row {row}", **told)
    if len(view.samples) > 1:
        title = tr("request {request:,}, sample {sample} · row {row}", sample=sample.branch + 1, **told)
    span = seconds_words(cell.begin, cell.end)
    came = tr("sent at {time:.3f} s; its text came {span}", time=view.submitted - origin, span=span)
    return "\n".join(filter(None, (title, came, _times(view, sample), _end(view, sample), NOT_KNOWN)))


def _times(view: RequestView, sample: SampleView) -> str:
    """ "TTFT 0.21 s · 96 tokens · median gap 18 ms"."""
    times = list(sample.token_times)
    if not times:
        return ""
    parts = [tr("TTFT {time}", time=duration(times[0] - view.submitted))]
    if sample.ended is not None:
        parts.append(trn("{count:,} token", "{count:,} tokens", len(times)))
    else:
        parts.append(trn("{count:,} piece of text so far", "{count:,} pieces of text so far", len(times)))
    gaps = [after - before for before, after in pairwise(times) if after > before]
    if gaps:
        parts.append(tr("median gap {time}", time=duration(median(gaps))))
    return " · ".join(parts)


def _end(view: RequestView, sample: SampleView) -> str:
    """Why it ended, and when."""
    if sample.ended is None or sample.reason is None:
        return tr("it goes on")
    how = state_words(replace(view, samples=[sample]))
    told = tr("{how} after {time}", how=how, time=duration(sample.ended - view.submitted))
    return f"{told}: {sample.error}" if sample.error else told
