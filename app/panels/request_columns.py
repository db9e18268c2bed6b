"""The columns of the request table: what each one sorts by, shows and copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.words import duration, number, request_title, state_rank, state_words
from engine import RequestView, request_metrics

PROMPT = 1  # the place of the column that takes what room is left


@dataclass(frozen=True, slots=True)
class Column:
    """`value` is what sorts (None comes last), `words` what is shown and copied."""

    title: str
    width: int
    value: Callable[[RequestView], Any]
    words: Callable[[RequestView], str]
    tip: str
    right: bool = True


def _seconds(pick: Callable[[RequestView], float | None]) -> Callable[[RequestView], str]:
    def words(view: RequestView) -> str:
        value = pick(view)
        return duration(value) if value is not None else ""

    return words


def _tpot(view: RequestView) -> float | None:
    return request_metrics(view).tpot


def _e2e(view: RequestView) -> float | None:
    return request_metrics(view).e2e


def _rate(view: RequestView) -> str:
    value = view.tokens_per_second
    return number(value) if value is not None else ""


def reason(view: RequestView) -> str:
    return view.error or (view.reason.value if view.reason is not None else "")


COLUMNS = (
    Column("Request", 76, lambda v: v.request, lambda v: str(v.request), "Number of the request", right=False),
    Column("Prompt", 260, request_title, request_title, "Its label, or what was asked", right=False),
    Column("State", 116, state_rank, state_words, "What it does now", right=False),
    Column("In", 52, lambda v: len(v.prompt_ids), lambda v: f"{len(v.prompt_ids):,}", "Tokens of the prompt"),
    Column("Out", 52, lambda v: len(v.tokens), lambda v: f"{len(v.tokens):,}", "Tokens given so far"),
    Column("TTFT", 68, lambda v: v.ttft, _seconds(lambda v: v.ttft), "Time to first token = first token − submit"),
    Column("TPOT", 68, _tpot, _seconds(_tpot), "Time per output token = (last − first token) ÷ (tokens − 1)"),
    Column("tok/s", 60, lambda v: v.tokens_per_second, _rate, "(tokens − 1) ÷ (last − first token)"),
    Column("E2E", 68, _e2e, _seconds(_e2e), "End-to-end latency = last token − submit"),
    Column("Reason", 112, reason, reason, "Why it ended", right=False),
)
