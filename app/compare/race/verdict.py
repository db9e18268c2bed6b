"""Who won a race, by what factor, and how sure that is. No Qt."""

from dataclasses import dataclass

from app.language import tr
from engine.compare import Comparison, MeasureCell

LEAST = 1.05  # a factor of one run each that is told from none
SURE = tr("No difference that this machine can show")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`lane` has won, None where nobody has; `words` for the back row, `reasons` below them."""

    lane: int | None
    words: str
    reasons: str


def verdict(comparison: Comparison, titles: tuple[str, ...]) -> Verdict | None:
    """The quickest lane against the first one, or, where that is the first, against the next; by output throughput.
    None where fewer than two lanes came to their end. `titles` are the lanes'."""
    row = comparison.row("output_throughput")
    done = [] if row is None else [i for i, cell in enumerate(row.cells) if cell.value]
    if row is None or len(done) < 2:
        return None
    cells = row.cells
    order = sorted(done, key=lambda i: cells[i].value or 0.0, reverse=True)
    best = order[0]
    other = done[0] if best != done[0] else order[1]
    factor = (cells[best].value or 0.0) / (cells[other].value or 1.0)
    repeats = min(len(cells[best].values), len(cells[other].values))
    reasons = [_steps(comparison, best, other), _runs(cells[best], cells[other], repeats)]
    if comparison.disturbed:
        reasons.append(tr("other programs ran: steps are sure, seconds are not"))
    told = "  ·  ".join(filter(None, reasons))
    if not _apart(cells[best], cells[other], factor, repeats):
        between = tr("{factor:.2f} × between {best} and {other}", factor=factor, best=titles[best], other=titles[other])
        return Verdict(None, SURE, f"{between}  ·  {told}")
    times = f"{factor:.1f} ×" if factor < 9.95 else f"{factor:.0f} ×"
    words = tr("{best} is {times} as fast as {other}", best=titles[best], times=times, other=titles[other])
    return Verdict(best, words, told)


def _apart(best: MeasureCell, other: MeasureCell, factor: float, repeats: int) -> bool:
    """Whether no repeat of the one is within those of the other; of one run each, whether it is much."""
    return factor >= LEAST and (repeats < 2 or min(best.values) > max(other.values))


def _steps(comparison: Comparison, best: int, other: int) -> str:
    """ "41 against 96 steps"."""
    row = comparison.row("steps")
    if row is None or None in (counts := (row.cells[best].value, row.cells[other].value)) or counts[0] == counts[1]:
        return ""
    ours, theirs = map(row.measure.text, counts)
    return tr("{ours} against {theirs} steps", ours=ours, theirs=theirs)


def _runs(best: MeasureCell, other: MeasureCell, repeats: int) -> str:
    """How many runs it is of, and how far these lie apart."""
    if repeats < 2:
        return tr("one run each")
    spread = max(best.spread or 0.0, other.spread or 0.0)
    return tr("medians of {repeats} runs each, ±{spread:.0f} %", repeats=repeats, spread=100 * spread)
