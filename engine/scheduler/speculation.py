"""Speculative decoding: tokens that are proposed cheaply, and verified together in one row of the model.

The model draws a token at every position of such a row, each with the noise of that position, as it would one by one.
A drafted token is kept where it is the very token that was drawn before it; the first that differs ends the row. So
what is said is, token for token, what would have been said without drafts, sampled or greedy, whatever is proposed.
That is rejection sampling (Leviathan et al. 2023) with its two draws coupled by the noise: a fixed proposal x is kept
with the probability p(x), and what follows a rejection has the distribution p without x.
"""

from collections.abc import Callable, Sequence
from math import log
from typing import Protocol

from engine.config.specs import AUTO_SPECULATED, EngineConfig
from engine.scheduler.block_pool import blocks_for
from engine.scheduler.ledger import Ledger
from engine.scheduler.plan import Row
from engine.scheduler.request import Branch, Emission
from engine.trace.records import Kind

LEAST, MOST = 0.05, 0.95  # between which the chance must be from which on a token is worth drafting
FIRST = 0.3  # that chance, before steps were measured
UNSEEN, FORGETS = 0.7, 0.02  # how likely a draft is kept before any was seen; how fast a request without returns there
PROBED = 32  # steps, of which one verifies nothing: what that costs is measured too
MEMORY = 0.9  # of what was seen of a request's drafts, and of the steps' times


class Drafter(Protocol):
    """Proposes how branches go on."""

    def draft(self, rows: Sequence[Row], most: Sequence[int], least: float) -> list[list[int]]:
        """For each decode row up to so many tokens that may follow its one token, which is the branch's newest. The
        row's blocks have room for them. `least`: the chance below which a token is not worth being proposed."""


class StepCosts:
    """What a step without prompts costs: the line through what was measured, seconds = `base` + `token` * tokens. What
    is long ago counts less."""

    def __init__(self) -> None:
        self._sums = [0.0] * 5

    def learn(self, tokens: int, seconds: float) -> None:
        terms = 1.0, tokens, seconds, tokens * tokens, tokens * seconds
        self._sums = [MEMORY * old + new for old, new in zip(self._sums, terms)]

    def share(self, rows: int) -> float:
        """A token's cost beside that of one more token a row: a draft that is kept less often slows a step of so many
        rows down. Near 0 where a step's time is that of reading weights, near 1 where it is that of computing."""
        n, x, y, xx, xy = self._sums
        spread = n * xx - x * x
        if n < 2 or spread <= 1e-6 * n * xx:
            return FIRST
        token = (n * xy - x * y) / spread
        whole = (y - token * x) / n + token * rows
        return min(MOST, max(LEAST, rows * token / whole)) if whole > 0 else MOST


class Speculation:
    """Adds to decode rows what the drafter proposes. `config.speculated` tokens a row, or, if that is "auto", as many
    as are likely enough to be kept for what a token costs. Never takes a block that somebody may need at once."""

    def __init__(self, config: EngineConfig, ledger: Ledger, drafter: Drafter) -> None:
        self._config, self._ledger, self._drafter = config, ledger, drafter
        self.costs = StepCosts()
        self._steps = PROBED // 2
        self.failed: Callable[[Exception], None] | None = None  # hears of a drafter's error; nothing is drafted then

    def grow(self, rows: list[Row]) -> None:
        """`rows` are a step's, before anything of it is noted."""
        decoding = [row for row in rows if row.kind is Kind.DECODE]
        if not decoding:
            return
        self._steps = (self._steps + 1) % PROBED
        if not self._steps:
            return
        left = self._ledger.limits.budget.token_budget - sum(row.count for row in rows)
        automatic = self._config.speculated == "auto"
        least = self.costs.share(len(decoding)) if automatic else 0.0
        asked, most = [], []
        for row in decoding:
            branch = row.branch
            wanted = likely(branch.accepts, least) if automatic else int(self._config.speculated)
            if not wanted:
                branch.accepts += FORGETS * (UNSEEN - branch.accepts)
            room = self._room(branch, min(wanted, left))
            if room > 0:
                asked.append(row)
                most.append(room)
                left -= room
        try:
            proposed = self._drafter.draft(asked, most, least) if asked else []
        except Exception as error:
            if self.failed is None:
                raise
            self.failed(error)
            return
        for row, drafted in zip(asked, proposed, strict=True):
            row.drafted = tuple(drafted)
            row.count += len(drafted)
            row.samples = row.count

    def learn(self, rows: Sequence[Row], accepted: Sequence[int], seconds: float) -> None:
        """After a step that took so long, with as many drafted tokens of each row accepted."""
        for row, kept in zip(rows, accepted):
            if row.drafted:
                tried = min(kept + 1, len(row.drafted))
                for i in range(tried):
                    row.branch.accepts += (1 - MEMORY) * ((i < kept) - row.branch.accepts)
        if all(row.kind is Kind.DECODE for row in rows):
            self.costs.learn(sum(row.count for row in rows), seconds)

    def _room(self, branch: Branch, wanted: int) -> int:
        """How many of the tokens wanted a branch can have beside the next, within its limit and the blocks that it has
        or can take."""
        if branch.request.params.repetition_penalty != 1.0 or branch.ruled:  # what was said changes what may follow
            return 0
        if branch.beam is not None:  # its next token is chosen among all beams'
            return 0
        ledger, pool = self._ledger, self._ledger.pool
        wanted = min(wanted, branch.request.limit - branch.generated - 1)
        if ledger.window is not None:
            wanted = min(wanted, ledger.window.alike(branch.request.prompt_length, branch.computed) - 1)
        needed = blocks_for(branch.computed + 1 + wanted, pool.block_size) - branch.room
        if 0 < needed < pool.available - len(ledger.running):
            ledger.take(branch, needed)
        return min(wanted, branch.room * pool.block_size - branch.computed - 1)


def likely(accepts: float, least: float) -> int:
    """The most tokens of which all are kept with the chance `least` or more, each being so with `accepts`."""
    if accepts >= 1.0:
        return AUTO_SPECULATED
    return min(AUTO_SPECULATED, int(log(least) / log(max(accepts, 1e-9))))


def agreed(drafted: Sequence[int], sampled: Sequence[Emission]) -> int:
    """How many of the drafted tokens are those that were drawn in their places."""
    for i, (proposed, drawn) in enumerate(zip(drafted, sampled)):
        if proposed != drawn.token:
            return i
    return len(drafted)
