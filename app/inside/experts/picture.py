"""The drawing of a mixture's experts: where a step's tokens went, where the run's did, and what steps activate."""

from typing import NamedTuple

from PySide6.QtCore import QPointF, QRect, QRectF
from PySide6.QtGui import QPainter

from app.inside.chart import Chart
from app.inside.experts.grid import HIGHEST, Grid
from app.inside.experts.history import ExpertHistory
from app.inside.experts.plot import ActivationPlot
from app.language import digits, tr, trn
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.words import rank_title
from engine.trace import Array

WIDE = 620  # pixels of the design from which on the grids stand beside each other
PLOT, PLOTTED = 96, 250  # pixels of the design: the least height of the plot, and the most
LEAST_ROW, LEAST = 9, 90  # of a grid's rows, and of all of them, before the plot has room
EMPTY = tr("Which experts of a mixture each step activates: nothing has run yet.")
DENSE = tr(
    "This model has no experts that tell of themselves: load the demo's mixture, and each step's are shown here."
)
NOT_YET = tr("Before the first step.")


class Sent(NamedTuple):
    """`[layers, experts]`: how many tokens of a step, and of the run up to it, each layer sent to each expert."""

    step: Array
    run: Array


class ExpertPicture(Chart):
    """Shows what `show_step` was given last. A press near a dot of the plot goes to a step like that."""

    hint, least = (480, 380), (220, 130)
    focus_ring = 4
    tiny = Face(11)

    def __init__(self) -> None:
        super().__init__("expert_picture", tr("Experts: how many tokens each layer sent to each expert"))
        self.history = ExpertHistory()
        self.place = -1
        self.grids: tuple[Grid, ...] = ()
        self.plot: ActivationPlot | None = None
        self._sent: Sent | None = None
        self._words = EMPTY

    def show_step(self, history: ExpertHistory, place: int, sent: Sent | None, words: str) -> None:
        """What the step of this place and the run up to it sent; else these words."""
        self.history, self.place, self._sent, self._words = history, place, sent, words
        self.setAccessibleDescription("; ".join(self._beside(sent.step)) if sent is not None else words)
        self.update()

    def _beside(self, step: Array) -> list[str]:
        """Of each layer: how many of its experts the step activates."""
        return [tr("{n} of {all}", n=int(count), all=step.shape[1]) for count in (step > 0).sum(1).tolist()]

    def _arrange(self, sent: Sent) -> None:
        """The grids beside each other or one below the other, and the plot where it has room."""
        (step, run), history = sent, self.history
        px, width, height, gap = theme.px, float(self.width()), float(self.height()), theme.px(10)
        title, rows = self.tiny.height * (2 if history.ranks else 1) + px(3), len(step)
        wide = width >= px(WIDE)
        grids = 1 if wide else 2
        fits = height - px(PLOT) - grids * (title + gap)
        plotted = fits >= grids * min(rows * px(LEAST_ROW), px(LEAST))
        room = (fits if plotted else height - (grids - 1) * gap - grids * title) / grids
        high = title + max(1.0, min(room, rows * px(HIGHEST)))
        across = (width - px(24)) / 2 if wide else width
        boxes = [QRectF(0, 0, across, high)]
        boxes.append(QRectF(width - across, 0, across, high) if wide else QRectF(0, high + gap, width, high))
        even = run.sum(1, keepdims=True).clip(1)
        shares = run / even
        busiest = [tr("busiest × {factor:.1f}", factor=share.max() * len(share)) for share in shares]
        self.grids = (
            Grid(
                tr("this step: tokens of each expert"),
                step,
                history.layers,
                _count,
                self._beside(step),
                boxes[0],
                self.tiny,
                self._parts(step),
            ),
            Grid(
                tr("the run until here: share of each layer's tokens, in %"),
                shares,
                history.layers,
                _share,
                busiest,
                boxes[1],
                self.tiny,
                self._parts(run),
            ),
        )
        top = boxes[1].bottom() + gap
        below = min(height - top, px(PLOTTED))
        self.plot = ActivationPlot(history, self.place, QRectF(0, top, width, below), self.tiny) if plotted else None

    def _parts(self, sent: Array) -> list[tuple[int, int, str]]:
        """Of each rank that has experts of its own: what part of all tokens they got."""
        shares = self.history.rank_shares(sent)
        each = zip(self.history.ranks, shares)
        return [(*own, f"{rank_title(rank)} · {100 * share:.0f} %") for rank, (own, share) in enumerate(each)]

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        if self._sent is None:
            self.grids, self.plot = (), None
            self.say_empty(painter, self._words)
            return
        self._arrange(self._sent)
        for grid in self.grids:
            grid.draw(painter)
        if self.plot is not None:
            self.plot.draw(painter)

    def moment_at(self, at: QPointF) -> float | None:
        place = self.plot.place_at(at) if self.plot is not None else -1
        return float(self.history.ended[place]) if place >= 0 else None

    def tip(self, at: QPointF) -> str:
        for grid in self.grids:
            found = grid.at(at)
            if found is not None and self._sent is not None:
                return self._cell_words(self._sent, *found)
        place = self.plot.place_at(at) if self.plot is not None else -1
        return step_words(self.history, place) if place >= 0 else ""

    def _cell_words(self, sent: Sent, layer: int, expert: int) -> str:
        number, tokens, all_sent = self.history.layers[layer] + 1, int(sent.step[layer, expert]), sent.run[layer]
        lines = [
            tr("layer {layer}, expert {expert}", layer=number, expert=expert + 1),
            trn("{count:,} token of this step", "{count:,} tokens of this step", tokens),
        ]
        share, even = all_sent[expert] / max(1, all_sent.sum()), 1 / len(all_sent)
        lines.append(
            tr(
                "{share:.1%} of what the layer sent until here; as even as can be were {even:.1%}",
                share=share,
                even=even,
            )
        )
        return "\n".join(lines)


def step_words(history: ExpertHistory, place: int) -> str:
    """A step of the plot, in words."""
    whole = max(1, len(history.layers) * history.experts)
    tokens, activated = int(history.tokens[place]), int(history.activated[place])
    expected = float(history.by_chance(history.tokens[place : place + 1])[0])
    head = trn(
        "step {step:,} · {count:,} token", "step {step:,} · {count:,} tokens", tokens, step=int(history.step[place])
    )
    said = tr(
        "{n:,} of {all:,} experts, {share:.0%}; were all as likely, {expected:.0%}",
        n=activated,
        all=whole,
        share=activated / whole,
        expected=expected,
    )
    return f"{head}\n{said}"


def _count(value: float) -> str:
    return digits(f"{int(value):,}")


def _share(value: float) -> str:
    return f"{100 * value:.0f}"
