"""What happened in a stretch of a run that a person selects, reckoned from the timeline's columns. No Qt in here."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from app.inside.timeline.marks import Mark, TimelineMarks
from app.inside.timeline.steps import TimelineSteps
from app.language import tr, trn
from app.words import duration, number

COMPUTED = ("decode", "both", "prompts")
TITLES = {"decode": tr("decode"), "both": tr("both"), "prompts": tr("prompts"), "nothing": tr("nothing")}


@dataclass(frozen=True, slots=True)
class Stretch:
    """`seconds` with requests. Steps, tokens, rows, gaps and ends are those of the steps that ended in it; `prompt` and
    `decoded` are tokens that were computed and kept, `output` those that were emitted. `shares` of the seconds by what
    their step computed: `COMPUTED`, or "nothing". Medians in seconds, None where there is none."""

    seconds: float
    steps: int
    prompt: int
    decoded: int
    output: int
    rows: int
    shares: Mapping[str, float]
    finished: int
    ttft: float | None
    itl: float | None

    def lines(self) -> tuple[str, str]:
        """Its figures in two lines."""
        rate = tr("{rate} tok/s", rate=number(self.output / self.seconds)) if self.seconds else ""
        rows = tr("{rows:.1f} rows a step", rows=self.rows / self.steps) if self.steps else ""
        work = tr("{prompt:,} prompt + {decoded:,} decoded tokens", prompt=self.prompt, decoded=self.decoded)
        steps = trn("{count:,} step", "{count:,} steps", self.steps)
        first = (tr("{time} selected", time=duration(self.seconds)), steps, rows, work, rate)
        known = {name: share for name, share in self.shares.items() if share >= 0.005}
        shares = ", ".join(f"{TITLES[name]} {100 * share:.0f} %" for name, share in known.items())
        times = [f"{name} {duration(value)}" for name, value in (("TTFT", self.ttft), ("ITL", self.itl)) if value]
        ends = tr("{count:,} finished", count=self.finished)
        if times:
            both = tr(" and ").join(times)
            ends = tr("{count:,} finished, median {times}", count=self.finished, times=both)
        return " · ".join(filter(None, first)), " · ".join(filter(None, (shares, ends)))


def stretch(steps: TimelineSteps, marks: TimelineMarks, begin: float, end: float, seconds: float) -> Stretch:
    """From `begin` to `end`, seconds of the timeline, in so many `seconds` of which requests were there."""
    first, last = (int(np.searchsorted(steps.end, time, "right")) for time in (begin, end))
    chosen = slice(first, last)
    in_first, in_last = steps.in_sight(begin, end)
    sight = slice(in_first, in_last)
    spent = np.minimum(steps.end[sight], end) - np.maximum(steps.begin[sight], begin)
    prompts, decodes = steps.prefill_rows[sight] > 0, steps.decode_rows[sight] + steps.held_rows[sight] > 0
    kinds = dict(zip(COMPUTED, (decodes & ~prompts, decodes & prompts, prompts & ~decodes)))
    shares = {name: float(spent[which].sum()) / seconds for name, which in kinds.items()} if seconds else {}
    if shares:
        shares["nothing"] = max(0.0, 1 - sum(shares.values()))
    rows = sum(int(column[chosen].sum()) for column in (steps.prefill_rows, steps.decode_rows, steps.held_rows))
    ends = marks.marks(*np.nextafter((begin, end), np.inf))
    ttft, gaps = marks.waits(begin, end)
    return Stretch(
        seconds=seconds,
        steps=last - first,
        prompt=int(steps.prefill[chosen].sum()),
        decoded=int(steps.decode[chosen].sum()),
        output=int(steps.emitted[chosen].sum()),
        rows=rows,
        shares=shares,
        finished=int(np.count_nonzero(ends.kind == Mark.FINISHED)),
        ttft=float(np.median(ttft)) if len(ttft) else None,
        itl=float(np.median(gaps)) if len(gaps) else None,
    )
