"""Beam search over ranked tokens, as transformers searches (`generation/utils.py: _beam_search`, 5.23).

In each step the likeliest tokens after every live path are joined, and the best `candidates` of all are weighed: those
that end the text may enter the pool of finished ones, if they are among the best `width`; of the others the best
`width` live on. A score is the sum of a path's log-probabilities over its length to the power of `length_penalty`, in
which the length counts the generated tokens with the one that ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from engine.decoding.beams.path import Path, Ranked, common
from engine.trace.records import Fate


class Weighed(NamedTuple):
    """A candidate: the path that it continues is at `parent`, and it goes on at `place`, -1 where it does not."""

    path: Path
    parent: int
    place: int
    fate: Fate


class BeamSearch:
    """One prompt's. `live` are the paths that go on by their place in [0, width): the best child of a path stays in its
    parent's place, others take those of paths that have no child. `finished` are the best that ended, best first.

    `early_stopping` says when the search is over: True, as soon as `width` have finished; False, when the best live one
    scores worse, at its present length, than the worst finished one; "never", when it would at its best length too,
    which with a length penalty above 0 is `limit`. `ends` tells whether a path's newest token ends the text.
    """

    def __init__(
        self,
        width: int,
        length_penalty: float,
        early_stopping: bool | str,
        limit: int,
        ends: Callable[[Path], bool],
        end_tokens: int = 1,
    ) -> None:
        self.width, self.length_penalty, self.early_stopping = width, length_penalty, early_stopping
        self.candidates = max(2, 1 + end_tokens) * width  # so that `width` are left which end nothing
        self.live: dict[int, Path] = {0: Path()}
        self.finished: list[Path] = []
        self.over = False
        self._limit, self._ends = limit, ends
        self._certain = self.live[0]

    def score(self, path: Path) -> float:
        """In nats; the higher the better."""
        return path.total / max(path.length, 1) ** self.length_penalty

    def advance(self, ranked: Mapping[int, Ranked]) -> list[Weighed]:
        """One step: `ranked` are the likeliest tokens after each live path, at least `candidates` of them unless the
        vocabulary has fewer. Returns all that were weighed, the best first."""
        joined = [
            (path.total + logprob, place, token, logprob)
            for place, path in self.live.items()
            for token, logprob in ranked[place][: self.candidates]
        ]
        joined.sort(key=lambda one: -one[0])
        best = [(Path(self.live[at], t, p, ranked[at]), at) for _, at, t, p in joined[: self.candidates]]
        ended = [self._ends(path) for path, _ in best]
        finishing = {path for (path, _), ends in zip(best[: self.width], ended) if ends}
        pool = self.finished + [path for path, _ in best if path in finishing]
        self.finished = sorted(pool, key=self.score, reverse=True)[: self.width]
        survivors = [(path, at) for (path, at), ends in zip(best, ended) if not ends][: self.width]
        places = self._placed(survivors)
        self.live = {place: path for path, place in places.items()}
        self.over = not self.live or not self._may_improve(survivors[0][0])
        kept = set(self.finished)
        weighed = []
        for path, at in best:
            fate = Fate.LIVE if path in places else Fate.FINISHED if path in kept else Fate.PRUNED
            weighed.append(Weighed(path, at, places.get(path, -1), fate))
        return weighed

    def best(self) -> list[Path]:
        """The best `width` of what there is, best first: those that finished once the search is over, and before that
        the live ones too."""
        paths = self.finished if self.over else [*self.finished, *self.live.values()]
        return sorted(paths, key=self.score, reverse=True)[: self.width]

    @property
    def certain(self) -> Path:
        """The longest beginning that every result will have, whatever is to come."""
        paths = [*self.finished, *self.live.values()]
        stems = {path.stem for path in paths}
        if len(stems) == 1 and None not in stems:
            self._certain = common(paths)
            for path in paths:
                path.stem = next(iter(path.after(self._certain.length)), None)
        return self._certain

    def _placed(self, survivors: list[tuple[Path, int]]) -> dict[Path, int]:
        """The place of each survivor."""
        parents = {at for _, at in survivors}
        free = iter([place for place in range(self.width) if place not in parents])
        places: dict[Path, int] = {}
        taken: set[int] = set()
        for path, at in survivors:
            places[path] = next(free) if at in taken else at
            taken.add(at)
        return places

    def _may_improve(self, best: Path) -> bool:
        """Whether a live path may yet score more than the worst finished one."""
        if len(self.finished) < self.width:
            return True
        if self.early_stopping is True:
            return False
        farthest = self.early_stopping == "never" and self.length_penalty > 0
        length = self._limit if farthest else best.length
        return best.total / length**self.length_penalty > self.score(self.finished[-1])
