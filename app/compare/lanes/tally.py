"""The figures beside a lane, kept up to date step by step with the definitions of `measure`. No Qt in here."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from app.language import tr
from app.words import duration, number
from engine.trace import Ended, FinishReason, Header, Kind, Presence, Record, Step, Submitted

KINDS = {"reserved": tr("reserved"), "internal": tr("internal"), "external": tr("external")}
LEAST_SHARE = 0.0005  # a kind of KV waste below it is not worth a word


@dataclass(frozen=True, slots=True)
class Figures:
    """`rate` in output tokens a second; shares from 0 to 1; seconds. None until they can be told.

    `finished` came to their own end; `failed` and `cancelled` did not. `again` is the share of computed tokens that had
    been computed before, in rows that said something new.
    """

    rate: float | None = None
    wasted: float | None = None
    thrown: float | None = None  # of the drafted tokens
    again: float = 0.0
    ttft: float | None = None
    waste: dict[str, float] | None = None
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    outside: bool = False  # a server's: its rows and its KV memory are not known

    @property
    def ended(self) -> int:
        return self.finished + self.failed + self.cancelled


class LaneTally:
    """Feed it the records of one trace in order. Costs O(rows) a step; `figures` O(requests)."""

    def __init__(self) -> None:
        self._ended: Counter[FinishReason] = Counter()
        self._submitted: dict[int, float] = {}
        self._begun: float | None = None
        self._outside = False
        self._last = 0.0
        self._tokens = self._rows = self._wasted = self._drafted = self._kept = self._computed = self._again = 0
        self._ttft: dict[int, float] = {}
        self._shares = np.zeros(4)  # used and the three kinds of waste, times seconds
        self._weight = 0.0
        self._presence = Presence()
        self._before: tuple[float, np.ndarray] | None = None  # the last step: seconds with requests, and shares

    def feed(self, records: Iterable[Record]) -> None:
        for record in records:
            self._presence.feed(record)
            match record:
                case Step():
                    self._feed(record)
                case Submitted():
                    self._submitted[record.request] = record.time
                    if self._begun is None:
                        self._begun = record.time
                case Ended():
                    self._ended[record.reason] += 1
                    if len(record.token):
                        self._tokens += len(record.token)
                        self._last = max(self._last, record.time)
                case Header():
                    self._outside = bool(record.outside)
                case _:
                    pass

    def _feed(self, step: Step) -> None:
        present = self._presence.total
        if self._before is not None:
            until, shares = self._before
            total = shares.sum()
            if total:
                self._shares += shares / total * (present - until)
                self._weight += present - until
        held = (step.kv_used, step.kv_reserved, step.kv_internal, step.kv_external)
        self._before = present, np.array(held, float)
        if not step.rows:
            return
        self._rows += step.rows - step.under_way
        for_nothing = (step.kind == Kind.HELD) | ((step.wasted >= step.count) & (step.count > 0))
        self._wasted += int(np.count_nonzero(for_nothing))
        self._computed += int(step.count.sum())
        self._again += int(step.wasted[~for_nothing].sum())
        if len(step.drafted):
            self._drafted += int(step.drafted.sum())
            self._kept += int(step.accepted.sum())
        if len(step.token):
            self._tokens += len(step.token)
            self._last = step.ended
            for request in step.request[step.token_row].tolist():
                if request not in self._ttft:
                    self._ttft[request] = step.ended - self._submitted[request]

    def figures(self) -> Figures:
        spent = self._last - (self._begun or 0.0)
        waste = None
        if self._weight:
            shares = self._shares / self._weight
            waste = {kind: float(shares[1 + i]) for i, kind in enumerate(KINDS)}
        return Figures(
            rate=self._tokens / spent if self._tokens and spent > 0 else None,
            wasted=self._wasted / self._rows if self._rows and not self._outside else None,
            thrown=1 - self._kept / self._drafted if self._drafted else None,
            again=self._again / self._computed if self._computed and not self._drafted else 0.0,
            ttft=float(np.percentile(list(self._ttft.values()), 95)) if self._ttft else None,
            waste=waste,
            finished=self._ended[FinishReason.STOP] + self._ended[FinishReason.LENGTH],
            failed=self._ended[FinishReason.ERROR],
            cancelled=self._ended[FinishReason.CANCELLED],
            outside=self._outside,
        )


def percent(share: float) -> str:
    """ "38 %", "0.6 %"."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"


def rate_words(rate: float | None) -> str:
    return "–" if rate is None else number(rate)


def wasted_words(figures: Figures) -> str:
    if figures.outside:
        return tr("wasted rows: unknown from outside")
    if figures.thrown is not None:
        return tr(
            "{share} of rows and {thrown} of drafts wasted", share=_wasted(figures), thrown=percent(figures.thrown)
        )
    if figures.again >= LEAST_SHARE:
        return tr(
            "{share} of rows wasted, {again} computed again", share=_wasted(figures), again=percent(figures.again)
        )
    return tr("{share} of computed rows wasted", share=_wasted(figures))


def short_wasted_words(figures: Figures) -> str:
    if figures.outside:
        return tr("rows unknown")
    if figures.thrown is not None:
        return tr("{thrown} of drafts wasted", thrown=percent(figures.thrown))
    if figures.again >= LEAST_SHARE:
        return tr("{again} computed again", again=percent(figures.again))
    return tr("{share} wasted", share=_wasted(figures))


def _wasted(figures: Figures) -> str:
    return "–" if figures.wasted is None else percent(figures.wasted)


def ttft_words(figures: Figures) -> str:
    return tr("first token p95 {time}", time=duration(figures.ttft) if figures.ttft is not None else "–")


def waste_words(figures: Figures) -> str:
    """ "KV waste 61 %: 22 reserved, 39 internal"."""
    if figures.outside:
        return tr("KV waste: unknown from outside")
    if figures.waste is None:
        return tr("KV waste {share}", share="–")
    kinds = {kind: share for kind, share in figures.waste.items() if share >= LEAST_SHARE}
    parts = ", ".join(f"{percent(share).removesuffix(' %')} {KINDS[kind]}" for kind, share in kinds.items())
    words = tr("KV waste {share}", share=percent(sum(figures.waste.values())))
    return f"{words}: {parts}" if len(kinds) > 1 else words


def short_waste_words(figures: Figures) -> str:
    """ "KV waste 61 %, mostly internal"."""
    if figures.waste is None or figures.outside:
        return waste_words(figures)
    whole, (kind, most) = sum(figures.waste.values()), max(figures.waste.items(), key=lambda each: each[1])
    if whole >= LEAST_SHARE and 2 * most > whole:
        return tr("KV waste {share}, mostly {kind}", share=percent(whole), kind=KINDS[kind])
    return tr("KV waste {share}", share=percent(whole))


def finished_words(figures: Figures, total: int) -> str:
    return _ended_words(tr("{n:,} of {all:,} finished", n=figures.finished, all=total), figures)


def short_finished_words(figures: Figures, total: int) -> str:
    return _ended_words(tr("{n:,} of {all:,}", n=figures.finished, all=total), figures)


def _ended_words(finished: str, figures: Figures) -> str:
    stopped = (tr("{count:,} stopped", count=figures.cancelled),) if figures.cancelled else ()
    failed = (tr("{count:,} failed", count=figures.failed),) if figures.failed else ()
    return ", ".join((finished, *stopped, *failed))
