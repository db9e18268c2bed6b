"""How much a step may compute where the gaps between an answer's tokens shall stay within a target: learned from the
steps that were. No torch."""

KEEP = 1 - 1 / 64  # of what was learned, with every step of its kind
MISSES = 0.05  # the share of gaps that may be longer than the target
GAIN = 0.1  # how far one gap that misses moves the aim
LOWEST = 0.25  # of the target: less is not aimed at, however many gaps miss it
SLIGHT = 1e-3  # of a count's square: how much small costs are preferred


class Pace:
    """Of one scheduler.

    What is aimed at is less than `target` (seconds) by as much as the steps scatter: each gap that misses the target
    lowers the aim, each that keeps it raises it a nineteenth as much, so that one in twenty misses it. Adaptive
    conformal inference follows a quantile in this way (Gibbs and Candès 2021).
    """

    def __init__(self, target: float) -> None:
        self.target = target
        self._aim = 0.9  # steps scatter, who knows by how much
        self._costs = _Costs()
        self._most = 0, 0  # decodes and tokens of prompts that a step has had: far beyond, nothing is known
        self._ended: float | None = None

    def learn(self, decodes: int, prompts: int, ended: float) -> None:
        """From a step of so many tokens of answers and of prompts. Who answers had a token in the step before too: so
        the gap is the time since that one ended."""
        before, self._ended = self._ended, ended
        if before is None or not decodes:
            return
        seconds = ended - before
        self._costs.learn(decodes, prompts, seconds)
        self._most = max(decodes, self._most[0]), max(prompts, self._most[1])
        moved = self._aim * (1 + GAIN * (MISSES - (seconds > self.target)))
        self._aim = max(LOWEST, min(1.0, moved))

    def prompts(self, decodes: int) -> int:
        """How many tokens of prompts a step may compute beside so many of answers."""
        most, each = 2 * self._most[1], self._costs.of_prompts
        left = self._aim * self.target - self._costs.of(decodes, 0)
        return max(1, min(most, int(left / each) if each > 0 else most))  # who has joined gets on

    def joins(self, running: int, more: int = 1) -> bool:
        """Whether so many more may run beside so many: whether all of them can decode within the target. What their
        prompts would take is no matter: while nobody joins, nothing new is learned of that."""
        known = running < 2 * self._most[0]
        return not running or (known and self._costs.of(running + more, 0) <= self._aim * self.target)


class _Costs:
    """What a step takes: so much by itself, for each token of answers, and for each of prompts. None is below 0. Least
    squares of the relative errors over the steps so far, in which older ones weigh less: steps with prompts make those
    without no older, and the other way round."""

    def __init__(self) -> None:
        self._kinds = [_nothing(), _nothing()]  # the normal equations: sums of products, without and with prompts
        self._costs = [0.0] * 3

    @property
    def of_prompts(self) -> float:
        """Seconds a token."""
        return self._costs[2]

    def of(self, decodes: int, prompts: int) -> float:
        """Seconds that such a step takes; what is not known yet takes none."""
        alone, decode, prompt = self._costs
        return alone + decode * decodes + prompt * prompts

    def learn(self, decodes: int, prompts: int, seconds: float) -> None:
        counts = [count / max(seconds, 1e-6) for count in (1.0, decodes, prompts, seconds)]
        kind = self._kinds[prompts > 0]
        self._kinds[prompts > 0] = [
            [KEEP * total + count * other for total, other in zip(row, counts)] for row, count in zip(kind, counts)
        ]
        sums = [[a + b for a, b in zip(*both)] for both in zip(*self._kinds)]
        self._costs, known = [0.0] * 3, [i for i in range(3) if sums[i][i]]
        while known:
            costs = _solved([[*(sums[i][j] for j in known), sums[i][3]] for i in known])
            if min(costs) >= 0:
                for i, cost in zip(known, costs, strict=True):
                    self._costs[i] = cost
                break
            del known[costs.index(min(costs))]


def _nothing() -> list[list[float]]:
    return [[0.0] * 4 for _ in range(3)]


def _solved(rows: list[list[float]]) -> list[float]:
    """The solution of normal equations, by elimination. What they leave open, as where all steps were alike, is decided
    by a slight preference for small costs."""
    for i, row in enumerate(rows):
        row[i] *= 1 + SLIGHT
    for i, row in enumerate(rows):
        for later in rows[i + 1 :]:
            factor = later[i] / row[i]
            later[:] = [b - factor * a for a, b in zip(row, later)]
    costs = list[float]()
    for row in reversed(rows):  # of the last cost alone, of the last two, ...
        at = len(rows) - 1 - len(costs)
        costs.insert(0, (row[-1] - sum(a * cost for a, cost in zip(row[at + 1 : -1], costs))) / row[at])
    return costs
