"""Where a step's time went, and how its forward pass divides into what is batched and what is not. No Qt in here.

Selective batching (Yu et al. 2022, "Orca", section 4.2): the matrix products take all tokens of a step as one batch,
whatever request they are of; attention looks at each request's own past, so it is computed for each apart.
"""

from dataclasses import dataclass

import numpy as np

from app.inside.columns import whole
from app.language import tr
from engine.trace import Array, Header, Kind, Step, count_work

# In order of time. What no phase accounts for is shown where the host does other work: between launching and waiting.
ORDER = ("plan", "draft", "prepare", "forward", "sample", "other", "wait", "commit")
AFTER = "record"  # written down when the step is over
ABOUT = {
    "plan": tr("the scheduler chooses the rows, and gives and takes blocks"),
    "draft": tr("the draft model says what may follow"),
    "prepare": tr("token ids, positions, block tables and masks are laid out as tensors"),
    "forward": tr("the model computes all rows"),
    "sample": tr("each row that is complete draws its next token"),
    "other": tr("what no phase accounts for: the step's duration less all its phases"),
    "wait": tr("the host waits for the device and reads the tokens"),
    "commit": tr("tokens become text, stops are checked, blocks go back"),
    "record": tr("this record is made; after the step's end, so not a part of its duration"),
}
OTHER_AHEAD = tr(
    "what no phase accounts for: the step's duration less all its phases; with one step launched ahead, the host works "
    "on its neighbours meanwhile"
)


@dataclass(frozen=True, slots=True)
class Attention:
    """What each row attends to, `[rows]`. `positions`: pairs of a token and a position that it sees. `operations`:
    floating-point operations of its attention, of which `useful`, 0 to 1, are for these pairs: all, but where rows are
    padded to one `rectangle`. `shares` of all rows' operations add up to 1."""

    positions: Array
    operations: Array
    useful: Array
    shares: Array
    rectangle: bool


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds. `parts`, in order, add up to `duration`; `record` comes after. Of `forward`, `attention` seconds are
    attention's: `measured`, or else by its share of the operations. `launched`: the device computes while the host goes
    on, so that forward's seconds are those of launching alone and its division is one of work, not of time."""

    duration: float
    parts: dict[str, float]
    record: float
    forward: float
    attention: float
    measured: bool
    launched: bool
    rows: Attention

    @property
    def matrices(self) -> float:
        """Seconds of forward that are not attention's: matrix products, and the small things between them."""
        return self.forward - self.attention

    @property
    def attention_share(self) -> float:
        """Attention's share of forward."""
        return self.attention / self.forward if self.forward > 0 else 0.0

    def share(self, name: str) -> float:
        """Of a part in the duration, 0 to 1."""
        whole = sum(self.parts.values())
        return self.parts[name] / whole if whole > 0 else 0.0

    @property
    def origin(self) -> str:
        """How the division of forward is known."""
        return tr("measured") if self.measured else tr("computed")


def step_times(step: Step, header: Header | None) -> StepTimes:
    """Where this step's time went."""
    duration = max(0.0, step.ended - step.started)
    known = {name: max(0.0, step.seconds.get(name, 0.0)) for name in ORDER if name != "other"}
    known["other"] = max(0.0, duration - sum(known.values()))
    parts = {name: known[name] for name in ORDER}
    rows, share = attention(step, header)
    forward, measured = known["forward"], step.attention > 0
    spent = min(step.attention, forward) if measured else forward * share
    launched = header is not None and header.model.device.startswith("cuda")
    record = max(0.0, step.seconds.get(AFTER, 0.0))
    return StepTimes(duration, parts, record, forward, spent, measured, launched, rows)


def attention(step: Step, header: Header | None) -> tuple[Attention, float]:
    """What each row of a step attends to; and attention's share of the operations of the whole forward pass.

    A row of tokens [first, first + count) sees count · first + count (count + 1) / 2 pairs: the triangle of a prompt,
    or the one line of a decode. Padded rows are one rectangle: each is computed as wide as the widest.
    """
    first, count = step.lies_at.astype(np.int64), step.count.astype(np.int64)
    positions = count * first + count * (count + 1) // 2
    if header is None or not len(first):
        shares = positions / max(1, int(positions.sum()))
        return Attention(positions, positions.astype(float), np.ones(len(first)), shares, False), 0.0
    rectangle, useful = not header.config.paged, np.ones(len(first))
    if rectangle:
        tokens = count + whole(step.padding, len(count))
        width = int((first + tokens).max())
        useful = np.minimum(positions / (tokens * (width - tokens) + tokens * (tokens + 1) // 2), 1.0)
    work = count_work(header, [step])
    operations = work.row_operations
    total, all_of_it = float(operations.sum()), float(work.operations[0])
    shares = operations / total if total else np.zeros(len(first))
    return Attention(positions, operations, useful, shares, rectangle), total / all_of_it if all_of_it else 0.0


def figure_words(times: StepTimes, step: Step) -> tuple[str, str]:
    """A sentence for what is batched in this step and what is not; and the same in brief."""
    rows, tokens = step.rows, int(step.count.sum() + step.padding.sum())
    if not rows:
        return (
            tr("No rows were computed: the record tells what happened to blocks meanwhile."),
            tr("No rows were computed."),
        )
    if rows == 1:
        return (
            tr(
                "One request alone: every weight is read for its tokens only. More rows would share these matrix "
                "products; only attention would grow with each."
            ),
            tr("One request alone: nothing is shared."),
        )
    if times.rows.rectangle:
        if (step.kind == Kind.HELD).any():
            words = tr(
                "All is batched: {rows:,} rows are one rectangle, so attention too runs as wide as the longest row; "
                "what is empty is computed with it (grey), and held rows are computed on.",
                rows=rows,
            )
        else:
            words = tr(
                "All is batched: {rows:,} rows are one rectangle, so attention too runs as wide as the longest row; "
                "what is empty is computed with it (grey).",
                rows=rows,
            )
        return words, tr("All is batched as one rectangle; the grey is computed in vain.")
    words = tr(
        "Selective batching: the matrix products take all {tokens:,} tokens at once, whichever request they are of; "
        "attention looks at each request's own past, so it is apart for each.",
        tokens=tokens,
    )
    return words, tr("Selective batching: matrix products together, attention apart.")
