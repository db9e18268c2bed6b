"""The drawing of what a token attends to: the text, all layers and heads, and the answer's other tokens."""

from collections.abc import Callable
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter

from app.inside.attention.heads import HeadGrid
from app.inside.attention.history import Seen, Watched, visible
from app.inside.attention.lines import AttentionLines, lines_that_fit
from app.inside.attention.text import TokenText
from app.inside.chart import Chart
from app.language import tr
from app.ui.look import theme
from app.ui.look.font_face import Face
from engine.trace import Array

WIDE = 720  # pixels of the design from which on the text stands beside the heads
LOWEST = 120  # pixels of the design that heads and lines need
READABLE = 0.5  # of the height, that the text has at most above them
EMPTY = tr("What each token of an answer attends to: nothing has run yet.")
NOBODY = tr("No request asked what its tokens attend to: switch Attention on under Sampling, and send one.")
NOT_YET = tr("Its prompt is still computed: nothing was attended to yet.")


class Focus(NamedTuple):
    """One token of a sample: what its layers and heads gave each token before it, `[layers, heads, context]`, which of
    these were `forgotten`, and `lines`, which finds those of the last tokens up to it, so many at most: their places,
    and what they gave, `[tokens, context]`. `heads`: how many the model has; `numbers`: those of the layers, of which
    a hybrid's others keep a state."""

    sample: Watched
    token: int
    weights: Array
    forgotten: range
    heads: int
    numbers: tuple[int, ...]
    lines: Callable[[int], tuple[list[int], Array]]


class AttentionPicture(Chart):
    """Shows what `show_token` was given last. A press on a token of the answer goes to its step, one on a head chooses
    it; the arrow keys up and down go from head to head."""

    chosen = Signal(object)  # Seen

    hint, least = (560, 380), (220, 120)
    focus_ring = 4
    face, tiny = Face(13), Face(11)

    def __init__(self) -> None:
        super().__init__("attention_picture", tr("Attention: what a token gives each token before it"))
        self.focus: Focus | None = None
        self.seen = Seen()
        self.text: TokenText | None = None
        self.heads: HeadGrid | None = None
        self.lines: AttentionLines | None = None
        self._words = EMPTY

    def show_token(self, focus: Focus | None, seen: Seen, words: str) -> None:
        """This token, as these heads see it; else these words."""
        self.focus, self.seen, self._words = focus, seen, words
        self.setAccessibleDescription(words if focus is None else "; ".join(strongest(focus, seen)))
        self.update()

    def _arrange(self, focus: Focus) -> None:
        """The text above or at the left, the heads and the lines where they have room."""
        sample, token, px = focus.sample, focus.token, theme.px
        width, height, gap = float(self.width()), float(self.height()), px(14)
        given = self.seen.of(focus.weights).tolist()
        tokens = [*sample.context(token), sample.texts[token]]

        def text(across: float, down: float) -> TokenText:
            box = QRectF(0, px(2), across, max(1.0, down - px(2)))
            return TokenText(tokens, given, box, self.face, focus.forgotten)

        def grid(box: QRectF) -> HeadGrid:
            return HeadGrid(focus.weights, focus.heads, focus.numbers, self.seen, box, self.tiny)

        def lines(box: QRectF) -> AttentionLines:
            places, told = focus.lines(lines_that_fit(box.height()))
            return AttentionLines(places, told, len(sample.prompt), box, self.tiny)

        self.heads = self.lines = None
        if height < px(LOWEST) + 2 * self.face.height:
            self.text = text(width, height)
        elif width >= px(WIDE):
            across = (width - gap) / 2
            self.text = text(across, height)
            self.heads = grid(QRectF(across + gap, 0, across, height))
            below = max(self.heads.area.bottom(), 0.0) + gap
            if self.text.bottom + gap < height - px(LOWEST):
                top = self.text.bottom + gap
                self.lines = lines(QRectF(0, top, across, height - top))
            elif below < height - px(LOWEST):
                self.lines = lines(QRectF(across + gap, below, across, height - below))
        else:
            self.text = text(width, max(height * READABLE, height - px(LOWEST) * 3))
            top, across = self.text.bottom + gap, (width - gap) / 2
            self.lines = lines(QRectF(0, top, across, height - top))
            self.heads = grid(QRectF(across + gap, top, across, height - top))

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        if self.focus is None:
            self.text = self.heads = self.lines = None
            self.say_empty(painter, self._words)
            return
        self._arrange(self.focus)
        for part in (self.text, self.heads, self.lines):
            if part is not None:
                part.draw(painter)

    def moment_at(self, at: QPointF) -> float | None:
        focus = self.focus
        if focus is None:
            return None
        token, prompt = self.text.at(at) if self.text is not None else -1, len(focus.sample.prompt)
        if token >= prompt:
            return focus.sample.times[token - prompt]
        found = self.lines.at(at) if self.lines is not None else None
        if self.lines is not None and found is not None:
            return focus.sample.times[self.lines.tokens[found[0]]]
        return None

    def mousePressEvent(self, event: QMouseEvent) -> None:
        found = self.heads.at(event.position()) if self.heads is not None else None
        if found is not None and event.button() is Qt.MouseButton.LeftButton:
            self.chosen.emit(Seen() if found == self.seen else found)
        else:
            super().mousePressEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Up, Qt.Key.Key_Down) and self.focus is not None:
            self.chosen.emit(self._next(-1 if event.key() == Qt.Key.Key_Up else 1))
        else:
            super().keyPressEvent(event)

    def _next(self, by: int) -> Seen:
        """The head after the chosen one, or before it; between the last and the first are all."""
        assert self.focus is not None
        layers, heads, _ = self.focus.weights.shape
        whole = heads == self.focus.heads
        all_of_them = [Seen(), *(Seen(n, head if whole else None) for n in range(layers) for head in range(heads))]
        at = all_of_them.index(self.seen) if self.seen in all_of_them else 0
        return all_of_them[(at + by) % len(all_of_them)]

    def tip(self, at: QPointF) -> str:
        focus = self.focus
        if focus is None:
            return ""
        sample, said = focus.sample, visible(focus.sample.texts[focus.token])
        context, given = sample.context(focus.token), self.seen.of(focus.weights)
        if self.text is not None and 0 <= (token := self.text.at(at)) < len(given):
            if token in focus.forgotten:
                return tr("“{token}” is forgotten: its K and V are in the cache no more", token=visible(context[token]))
            return gives(said, visible(context[token]), float(given[token]))
        if self.heads is not None and (seen := self.heads.at(at)) is not None:
            return "\n".join((seen.words(focus.numbers), *strongest(focus, seen)))
        if self.lines is not None and (found := self.lines.at(at)) is not None:
            line, token = found
            own = self.lines.tokens[line]
            if token < len(sample.prompt) + own and self.lines.weights[line, token] >= 0:
                return gives(
                    visible(sample.texts[own]), visible(context[token]), float(self.lines.weights[line, token])
                )
        return ""


def gives(token: str, other: str, weight: float) -> str:
    return tr("“{token}” gives “{other}” {share:.1%}", token=token, other=other, share=weight)


def strongest(focus: Focus, seen: Seen, count: int = 3) -> list[str]:
    """Whom a token gives most, in words."""
    given, context = seen.of(focus.weights), focus.sample.context(focus.token)
    said = visible(focus.sample.texts[focus.token])
    return [gives(said, visible(context[at]), float(given[at])) for at in (-given).argsort()[:count].tolist()]
