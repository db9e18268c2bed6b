"""What the list says of a file, what is searched for, and what goes beyond the limit."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.runs.entry import (
    MOST_RECORDED,
    Entry,
    detail_words,
    factor_words,
    factors,
    matches,
    over_limit,
    parsed_tags,
    when_words,
)
from engine.library import LaneFacts, Making, RunFacts

MAKING = Making("a", "demo", "none", "here")


def entry(name: str = "talk", *, rate: float = 100.0, ttft: float = 2.0, age: float = 0.0, **told: object) -> Entry:
    lane = LaneFacts("static · 8", "static", 4, 4, 40, 80, 2.0, rate, ttft)
    facts = RunFacts(name, 1e9 - age, MAKING, "", (lane,))
    return replace(Entry(Path(f"/runs/{name}.bsrun"), 100, int(1e18), facts), **told)  # type: ignore[arg-type]


def test_a_title_is_the_file_name_without_its_date() -> None:
    assert entry("2026-11-20 10.00.00 stories").title == "stories"
    assert entry("2026-11-20 10.00.00 ").title == "2026-11-20 10.00.00 "
    assert entry("mine").title == "mine"


def test_below_the_title_stands_how_it_was_made_or_why_nobody_knows() -> None:
    assert detail_words(entry()) == "demo stories  ·  static · 8"
    unread = entry(facts=None)
    assert detail_words(unread) == "not read yet"
    recorded = replace(unread, recording=True)
    assert detail_words(recorded) == "being recorded; its figures come when nothing runs"
    assert recorded.unread
    long = replace(recorded, size=MOST_RECORDED + 1)
    assert detail_words(long) == "being recorded; its figures come when it is done"
    assert not long.unread, "or each look at the list would read all of it"
    assert detail_words(entry(recording=True)) == "being recorded  ·  demo stories  ·  static · 8"
    broken = replace(unread, problem=f"{unread.path} is not a Batchscope run; choose another")
    assert detail_words(broken) == "Is not a Batchscope run; choose another"
    assert not broken.unread


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", True),
        ("TAL", True),
        ("demo static", True),
        ("demo chunked", False),
        ("tag:paper", True),
        ("tag:static", False),
        ("mode:stat", True),
        ("mode:demo", False),
        ("model:demo mode:static tag:pa is:run", True),
        ("is:race", False),
        ("other:x", False),
    ],
)
def test_words_look_everywhere_and_fields_in_one_place(words: str, found: bool) -> None:
    assert matches(entry(tags=("paper",)), words) is found


def test_ratios_are_to_the_baseline_and_marked_where_more_than_the_batching_differs() -> None:
    base = entry("base", rate=100, ttft=2.0, pinned=True)
    told = factors(entry("b", rate=146, ttft=1.0), base)
    assert told is not None
    assert (told.throughput, told.ttft, told.differs) == (1.46, 0.5, ())
    assert factor_words(told.throughput, told.differs) == "×1.46"
    assert factors(base, base) is None
    assert factors(base, None) is None
    assert factors(entry("c", facts=None), base) is None
    one = entry("d", rate=50)
    assert one.facts is not None
    other = replace(one, facts=replace(one.facts, making=replace(MAKING, prompts="b", machine="there")))
    unlike = factors(other, base)
    assert unlike is not None
    assert unlike.words.startswith("Not the baseline's prompts and machine")
    assert factor_words(unlike.throughput, unlike.differs) == "~×0.500"


def test_tags_are_words_once_each_in_lower_case() -> None:
    assert parsed_tags(" Talk, paper  talk,,PAPER ") == ("talk", "paper")
    assert parsed_tags(" , ") == ()


def test_the_day_is_told_from_today() -> None:
    now = time.mktime((2026, 11, 23, 12, 0, 0, 0, 0, -1))
    assert when_words(now - 3600, now) == ("today", "11:00")
    assert when_words(now - 13 * 3600, now) == ("yesterday", "23:00")
    assert when_words(now - 10 * 24 * 3600, now) == ("13 Nov", "12:00")
    assert when_words(now - 400 * 24 * 3600, now)[0] == "19 Oct 2025"


def test_beyond_the_limit_the_oldest_go_that_nobody_marked() -> None:
    runs = [entry(str(i), age=i) for i in range(5)]  # 100 bytes each; 4 is the oldest
    runs[4] = replace(runs[4], tags=("keep",))
    runs[3] = replace(runs[3], pinned=True)
    runs[0] = replace(runs[0], recording=True)
    assert over_limit(runs, 0) == [], "no limit"
    assert over_limit(runs, 500) == []
    assert [e.title for e in over_limit(runs, 499)] == ["2"]
    assert [e.title for e in over_limit(runs, 1)] == ["2", "1"], "what is marked or recorded stays, whatever it takes"
