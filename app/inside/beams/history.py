"""Beam searches as a trace's records tell them: their trees, column by column. No Qt in here."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from app.inside.visible import VISIBLE
from engine import SamplingParams
from engine.trace import Ended, Fate, FinishReason, Record, Step, Submitted


@dataclass(slots=True, eq=False)
class Candidate:
    """One token after a path. `branch` is the beam at which it goes on, -1 where it does not; `total` is the sum of its
    path's log-probabilities."""

    parent: Candidate | None
    token: int
    text: str
    branch: int
    total: float
    fate: Fate
    length: int

    @property
    def path(self) -> list[Candidate]:
        """From the first token to this one."""
        found: list[Candidate] = []
        at: Candidate | None = self
        while at is not None:
            found.append(at)
            at = at.parent
        return found[::-1]

    @property
    def said(self) -> str:
        """Its path's text."""
        return "".join(each.text for each in self.path)

    @property
    def shown(self) -> str:
        """Its own text by itself, line breaks made visible."""
        return self.text.strip(" ").translate(VISIBLE) or "␣"


@dataclass(slots=True)
class Column:
    """What one step weighed, the best first. `ended` is when that was decided, in seconds of the trace."""

    step: int
    ended: float
    candidates: list[Candidate]

    @property
    def live(self) -> list[Candidate]:
        return [each for each in self.candidates if each.fate is Fate.LIVE]


@dataclass(slots=True)
class Search:
    """One request's beam search, in order of its steps; `over` once it ended by itself."""

    request: int
    params: SamplingParams
    columns: list[Column] = field(default_factory=list)
    over: bool = False
    _at: dict[int, Candidate] = field(default_factory=dict)  # by beam: the newest of its path
    _times: list[float] = field(default_factory=list)
    _ended: list[tuple[int, Candidate]] = field(default_factory=list)  # with the column's place

    def place_at(self, moment: float) -> int:
        """The place of the last column by then; -1 before the first."""
        return bisect_right(self._times, moment) - 1

    def score(self, candidate: Candidate) -> float:
        """The candidate's, were its path a result: over its length to the power of the length penalty."""
        return candidate.total / candidate.length**self.params.length_penalty

    def finished(self, place: int) -> list[Candidate]:
        """The best texts that were finished by a column, best first."""
        ended = [each for at, each in self._ended if at <= place]
        return sorted(ended, key=self.score, reverse=True)[: self.params.beam_width]

    def leading(self, place: int) -> list[Candidate]:
        """What lives on after a column, the best first; after the last one the results, if the search is over."""
        live = self.columns[place].live
        return self.finished(place) if not live or (self.over and place == len(self.columns) - 1) else live

    def certain(self, place: int) -> int:
        """How many tokens all that lives on or is finished by a column begin alike with."""
        paths = [each.path for each in {id(c): c for c in (*self.leading(place), *self.finished(place))}.values()]
        if not paths:
            return 0
        shortest = min(map(len, paths))
        return next((i for i in range(shortest) if len({id(path[i]) for path in paths}) > 1), shortest)

    def add(self, step: Step, rows: Iterable[int]) -> None:
        before, candidates = dict(self._at), []
        for row in rows:
            parent = before.get(int(step.beam_parent[row]))
            length = parent.length + 1 if parent is not None else 1
            told = int(step.beam_token[row]), step.beam_text[row], int(step.beam_branch[row])
            fate = Fate(int(step.beam_fate[row]))
            candidate = Candidate(parent, *told, float(step.beam_score[row]), fate, length)
            candidates.append(candidate)
            if fate is Fate.LIVE:
                self._at[candidate.branch] = candidate
            elif fate is Fate.FINISHED:
                self._ended.append((len(self.columns), candidate))
        self.columns.append(Column(step.step, step.ended, candidates))
        self._times.append(step.ended)


class BeamHistory:
    """The searches of a trace by request; costs O(candidates) a step."""

    def __init__(self) -> None:
        self.searches: dict[int, Search] = {}
        self._times: list[float] = []  # of columns of any search, and whose
        self._requests: list[int] = []

    def take(self, records: Iterable[Record]) -> None:
        """The next records of the trace."""
        for record in records:
            self.feed(record)

    def feed(self, record: Record) -> None:
        match record:
            case Submitted() if record.params.beam_width > 1:
                self.searches[record.request] = Search(record.request, record.params)
            case Step() if len(record.beam_request):
                rows: dict[int, list[int]] = {}
                for row, request in enumerate(record.beam_request.tolist()):
                    rows.setdefault(request, []).append(row)
                for request, these in rows.items():
                    if request in self.searches:
                        self.searches[request].add(record, these)
                        self._times.append(record.ended)
                        self._requests.append(request)
            case Ended() if record.request in self.searches:
                if record.reason in (FinishReason.STOP, FinishReason.LENGTH):
                    self.searches[record.request].over = True
            case _:
                pass

    def shown(self, selected: int, moment: float) -> Search | None:
        """The selected request's search; else the one that a step last decided for by then, or the first."""
        if selected in self.searches:
            return self.searches[selected]
        if not self._requests:
            return next(iter(self.searches.values()), None)
        return self.searches[self._requests[max(0, bisect_right(self._times, moment) - 1)]]
