"""A file in the list of runs: what is known of it, in words, and whether it is searched for. No Qt in here."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from app.language import tr, trn
from app.words import model_words, sentence, unlike_words
from engine.compare import RACE_SUFFIX
from engine.library import LaneFacts, RunFacts, differences, run_title
from engine.trace import ratio_text

DAY = 24 * 3600
MOST_RECORDED = 32 << 20  # bytes: a longer run is read when it is done, and not again and again until then


@dataclass(frozen=True, slots=True)
class Entry:
    """`modified` in nanoseconds of Unix time, `size` in bytes. `facts` are None until they are read, or where they
    cannot be: then `problem` says why. `recording`: it is still written, and its facts are those so far. `reading`: it
    is read now."""

    path: Path
    size: int
    modified: int
    facts: RunFacts | None = None
    problem: str = ""
    tags: tuple[str, ...] = ()
    pinned: bool = False
    recording: bool = False
    reading: bool = False

    @property
    def race(self) -> bool:
        return self.path.suffix == RACE_SUFFIX

    @property
    def title(self) -> str:
        """The file's name, without the date that it begins with at first."""
        return run_title(self.path)

    @property
    def created(self) -> float:
        """Unix time in seconds."""
        return self.facts.created if self.facts is not None and self.facts.created else self.modified / 1e9

    @property
    def best(self) -> LaneFacts | None:
        """Whose figures the list shows: the run's, or those of a race's fastest lane."""
        return self.facts.best if self.facts is not None else None

    @property
    def unread(self) -> bool:
        return self.facts is None and not self.problem and not self.long_recording

    @property
    def long_recording(self) -> bool:
        """It is written and will be for long: nothing is known of it until then."""
        return self.recording and self.size > MOST_RECORDED

    @property
    def kept(self) -> bool:
        """Whether a person has marked it as worth keeping."""
        return self.pinned or bool(self.tags)


def detail_words(entry: Entry) -> str:
    """Below the title: "demo stories · continuous", "race of 3 lanes · fastest: continuous"."""
    facts = entry.facts
    if facts is None:
        if entry.reading:
            return tr("being read …")
        if entry.recording and not entry.problem:
            if entry.long_recording:
                return tr("being recorded; its figures come when it is done")
            return tr("being recorded; its figures come when nothing runs")
        return sentence(entry.problem.removeprefix(f"{entry.path}").lstrip(": ")) or tr("not read yet")
    if facts.race:
        lanes = len(facts.lanes)
        fastest = (tr("fastest: {lane}", lane=facts.best.name),) if lanes > 1 else ()
        raced = trn("race, {count} lane", "race of {count} lanes", lanes)
        return "  ·  ".join((model_words(facts.making.model), raced, *fastest))
    quantized = () if facts.making.quantization == "none" else (facts.making.quantization,)
    so_far = (tr("being recorded"),) if entry.recording else ()
    return "  ·  ".join((*so_far, model_words(facts.making.model), *quantized, facts.best.name))


def when_words(created: float, now: float) -> tuple[str, str]:
    """The day and the time: "today", "10:42"."""
    then, today = time.localtime(created), time.localtime(now)
    clock = time.strftime("%H:%M", then)
    if then[:3] == today[:3]:
        return tr("today"), clock
    if then[:3] == time.localtime(now - DAY)[:3]:
        return tr("yesterday"), clock
    day = tr("{day} {month}", day=then.tm_mday, month=month_words(then.tm_mon))
    return (day if then.tm_year == today.tm_year else f"{day} {then.tm_year}"), clock


def month_words(month: int) -> str:
    """Its name in short, counted from 1."""
    first = tr("Jan"), tr("Feb"), tr("Mar"), tr("Apr"), tr("May"), tr("Jun")
    names = *first, tr("Jul"), tr("Aug"), tr("Sep"), tr("Oct"), tr("Nov"), tr("Dec")
    return names[month - 1]


@dataclass(frozen=True, slots=True)
class Factors:
    """A run against the baseline: ratios of output throughput and of the TTFT's 95th percentile, None where either has
    none. `differs`: what they do not have in common, so that the ratios tell more than the way of batching."""

    throughput: float | None
    ttft: float | None
    differs: tuple[str, ...]

    @property
    def words(self) -> str:
        """A sentence."""
        if not self.differs:
            return tr("The baseline had the same prompts, model and machine.")
        unlike = unlike_words(self.differs)
        return tr("Not the baseline's {unlike}: the ratio is not of the way of batching alone.", unlike=unlike)


def factors(entry: Entry, base: Entry | None) -> Factors | None:
    """None for the baseline itself, and where one of the two is not read."""
    if base is None or base.path == entry.path or base.facts is None or entry.facts is None:
        return None
    ours, theirs = entry.facts.best, base.facts.best
    return Factors(
        ours.throughput / theirs.throughput if ours.throughput and theirs.throughput else None,
        ours.ttft_p95 / theirs.ttft_p95 if ours.ttft_p95 and theirs.ttft_p95 else None,
        differences((entry.facts.making, base.facts.making)),
    )


def factor_words(ratio: float | None, differs: Iterable[str]) -> str:
    """ "×1.46", or "~×1.46" where more than the way of batching differs."""
    if ratio is None:
        return ""
    return f"{'~' if any(True for _ in differs) else ''}{ratio_text(ratio)}"


_FIELDS: dict[str, Callable[[Entry], Iterable[str]]] = {
    "tag": lambda e: e.tags,
    "mode": lambda e: e.facts.modes if e.facts is not None else (),
    "model": lambda e: (model_words(e.facts.making.model), e.facts.making.model) if e.facts is not None else (),
    "is": lambda e: ("race" if e.race else "run", *(("baseline",) if e.pinned else ())),
}


def matches(entry: Entry, words: str) -> bool:
    """Whether all of the words are in its title, model, modes or tags. `tag:x`, `mode:x`, `model:x` and `is:race` (run,
    baseline) look in one place."""
    cells = " ".join([entry.title, detail_words(entry), *(v for values in _FIELDS.values() for v in values(entry))])
    cells = cells.casefold()
    for word in words.casefold().split():
        field, colon, value = word.partition(":")
        if colon and field in _FIELDS:
            if not any(value in each.casefold() for each in _FIELDS[field](entry)):
                return False
        elif word not in cells:
            return False
    return True


def parsed_tags(text: str) -> tuple[str, ...]:
    """Tags as they are typed, with commas or spaces between them; each once, in lower case."""
    return tuple(dict.fromkeys(re.split(r"[\s,]+", text.casefold().strip(" ,\n\t")))) if text.strip(" ,\n\t") else ()


def over_limit(entries: Iterable[Entry], limit: int) -> list[Entry]:
    """Which files go so that the others take no more than `limit` bytes: the oldest first; never what is pinned, has a
    tag or is still written. 0 is no limit."""
    entries = list(entries)
    excess = sum(entry.size for entry in entries) - limit
    going: list[Entry] = []
    for entry in sorted(entries, key=lambda e: e.created):
        if limit <= 0 or excess <= 0:
            break
        if not (entry.kept or entry.recording):
            going.append(entry)
            excess -= entry.size
    return going
