"""How much a step may compute where the gaps between an answer's tokens shall stay within a target: learned from the
steps that were. No torch."""

import numpy as np

KEEP = 1 - 1 / 64  # of what was learned, with every step of its kind
MISSES = 0.05  # the share of gaps that may be longer than the target
GAIN = 0.1  # how far one gap that misses moves the aim
LOWEST = 0.25  # of the target: less is not aimed at, however many gaps miss it
SLIGHT = 1e-3  # of a count's square: how much small costs are preferred where the steps leave them open


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
        most, each = 2 * self._most[1], self._costs.of_prompt
        left = self._aim * self.target - self._costs.of_answers(decodes)
        return max(1, min(most, int(left / each) if each > 0 else most))  # who has joined gets on

    def joins(self, running: int, more: int) -> bool:
        """Whether so many more may run beside so many: whether all of them can decode within the target. What their
        prompts would take is no matter: while nobody joins, nothing new is learned of that."""
        known = running < 2 * self._most[0]
        return not running or (known and self._costs.of_answers(running + more) <= self._aim * self.target)


class _Costs:
    """What a step takes: so much by itself, for each token of answers, and for each of prompts. None is below 0. Least
    squares of the relative errors over the steps so far, in which older ones weigh less: steps with prompts make those
    without no older, and the other way round."""

    def __init__(self) -> None:
        self._products = np.zeros((2, 4, 4))  # sums, by whether there were prompts; the last line is the seconds'
        self._costs = [0.0] * 3

    @property
    def of_prompt(self) -> float:
        """Seconds for each of its tokens; 0 where that is not known yet."""
        return self._costs[2]

    def of_answers(self, tokens: int) -> float:
        """Seconds of a step without prompts; what is not known yet takes none."""
        return self._costs[0] + self._costs[1] * tokens

    def learn(self, decodes: int, prompts: int, seconds: float) -> None:
        counts = np.array((1.0, decodes, prompts, seconds)) / max(seconds, 1e-6)
        kind = self._products[int(prompts > 0)]
        kind *= KEEP
        kind += np.outer(counts, counts)
        products = self._products.sum(axis=0)
        products[np.diag_indices(3)] *= 1 + SLIGHT
        self._costs, known = [0.0] * 3, [i for i in range(3) if products[i, i]]
        while known:
            costs = np.linalg.solve(products[np.ix_(known, known)], products[known, 3]).tolist()
            if min(costs) >= 0:
                for i, cost in zip(known, costs, strict=True):
                    self._costs[i] = cost
                break
            del known[costs.index(min(costs))]
