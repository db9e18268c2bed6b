"""The card of one token, laid over the window beside the token: its numbers, and what else could have come."""

import math

from PySide6.QtCore import QRect, QRectF, QSizeF, Qt
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QWidget

from app.language import tr, trn
from app.play.transcript.tokens import Alternative, TokenCard, visible
from app.ui.look import theme
from app.ui.look.font_face import Face, wrapped
from app.ui.painted import Painted
from app.words import duration

WIDE = 264
PAD = 10
MOST_BARS = 8
BAR = 64  # pixels of a certain token's bar
HOW = tr("Alternatives were not recorded. Set “Alternatives” under Sampling (logprobs) before sending.")
NO_TEXT = tr("no text of its own")
ENDED = tr("came with the end of its request, after its last step")


def share(probability: float) -> str:
    """A probability in words: "62.4 %", "0.03 %", "< 0.01 %"."""
    percent = 100 * probability
    if percent < 0.01:
        return "< 0.01 %"
    return f"{percent:.1f} %" if percent >= 0.95 else f"{percent:.2f} %"


def probability_words(card: TokenCard) -> str:
    return tr("probability {share}", share=share(card.probability))


def rank_words(card: TokenCard) -> str:
    """The token's rank among what was recorded; empty where nothing was."""
    if card.rank is not None:
        return tr("rank {rank}", rank=card.rank)
    recorded = len(card.alternatives) - 1
    return tr("rank > {rank}", rank=recorded) if recorded > 0 else ""


def grammar_words(card: TokenCard) -> str:
    """What the answer's grammar did here; empty where it has none."""
    if card.allowed is None:
        return ""
    if card.vocabulary:
        words = tr("{allowed:,} of {all:,} tokens allowed", allowed=card.allowed, all=card.vocabulary)
    else:
        words = tr("{allowed:,} tokens allowed", allowed=card.allowed)
    if card.rather is None:
        return tr("{tokens}, the likeliest of all among them", tokens=words)
    text, probability = visible(card.rather.text) or "∅", share(card.rather.probability)
    return tr(
        "{tokens}; the model would rather have said “{text}” ({probability})",
        tokens=words,
        text=text,
        probability=probability,
    )


def wait_words(card: TokenCard) -> str:
    """TTFT or ITL, and with how many others it came."""
    wait = f"{'TTFT' if card.first else 'ITL'} {duration(card.wait)}"
    others = card.together - 1
    return trn("{wait}, with another one", "{wait}, with {count:,} others", others, wait=wait) if others > 0 else wait


def card_words(card: TokenCard, origin: float) -> list[str]:
    """The facts of a token that stand below its alternatives, a line each."""
    at = card.index + 1
    place = tr("token {at:,} of {all:,}  ·  position {position:,}", at=at, all=card.count, position=card.position)
    step = tr("step {step:,}", step=card.step) if card.step is not None else ENDED
    lines = [wait_words(card), place, tr("{step}  ·  at {time:,.3f} s", step=step, time=card.time - origin)]
    if card.drafted:
        lines.append(tr("drafted, and kept"))
    elif card.instead_of is not None:
        lines.append(tr("the model's own, in place of the draft's “{draft}”", draft=visible(card.instead_of)))
    return lines


class TokenCardView(Painted):
    """Shows a card at a place of the window; takes no clicks and no focus. Its words are its accessible name."""

    strong, small, mono = Face(14, 600, mono=True), Face(12), Face(12, mono=True)

    def __init__(self, owner: QWidget) -> None:
        super().__init__("token_card", parent=owner)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._owner = owner
        self.card: TokenCard | None = None
        self._lines: list[str] = []
        self._note: list[str] = []
        self._grammar: list[str] = []
        self.hide()

    def show_card(self, card: TokenCard, origin: float, anchor: QRect) -> None:
        """Shows a card below `anchor`, in the owner's coordinates, or above it where there is no room."""
        self.card = card
        self._lines = card_words(card, origin)
        room = theme.px(WIDE - 2 * PAD)
        self._note = [] if card.alternatives else wrapped(HOW, self.small, room)
        self._grammar = wrapped(grammar_words(card), self.small, room) if card.allowed is not None else []
        text = visible(card.text) or NO_TEXT
        parts = [f"{text}, {probability_words(card)}", rank_words(card), grammar_words(card)]
        parts += [*self._lines, *self._note]
        parts += [f"{visible(other.text)} {share(other.probability)}" for other in card.alternatives]
        self.setAccessibleName("; ".join(part for part in parts if part))
        window = self._owner.window()
        if self.parentWidget() is not window:
            self.setParent(window)
        self.resize(theme.px(WIDE), self._height())
        corner, gap = self._owner.mapTo(window, anchor.bottomLeft()), theme.px(6)
        y, lowest = corner.y() + gap, window.height() - gap - self.height()
        if y > lowest:
            above = corner.y() - anchor.height() - gap - self.height()
            y = above if above >= gap else max(gap, lowest)
        x = min(max(gap, corner.x() - theme.px(PAD)), max(gap, window.width() - gap - self.width()))
        self.move(x, y)
        self.show()
        self.raise_()
        self.update()

    def drop(self) -> None:
        """Shows nothing; belongs to its owner again."""
        self.card = None
        self.hide()
        if self.parentWidget() is not self._owner:
            self.setParent(self._owner)

    @property
    def _line(self) -> int:
        return max(theme.px(18), math.ceil(self.small.height))

    @property
    def _bars(self) -> int:
        return min(MOST_BARS, len(self.card.alternatives)) if self.card is not None else 0

    def _height(self) -> int:
        assert self.card is not None
        rows = 1 + len(self._grammar) + (self._bars or len(self._note)) + len(self._lines)
        gap = 4 if self._grammar else 0
        return sum(map(theme.px, (2 * PAD, 26, 4, gap, 6, 7))) + rows * self._line

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        card = self.card
        if card is None:
            return
        t, px = theme.current(), theme.px
        painter.setPen(QPen(theme.over(t.edge, t.raised), 1))
        painter.setBrush(t.raised)
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), px(6), px(6))
        left, right = float(px(PAD)), float(self.width() - px(PAD))
        y = self._head(painter, card, left, right, float(px(PAD)))
        if self._grammar:
            y = self._say(painter, self._grammar, t.text, left, y) + px(4)
        if self._bars:
            for other in self._shown(card):
                self._bar(painter, other, QRectF(left, y, right - left, self._line))
                y += self._line
        else:
            y = self._say(painter, self._note, t.secondary, left, y)
        painter.fillRect(QRectF(left, y + px(6), right - left, 1), t.hairline)
        self._say(painter, self._lines, t.secondary, left, y + px(6) + px(7))

    def _shown(self, card: TokenCard) -> list[Alternative]:
        """As many alternatives as there is room for; the chosen one is always among them."""
        shown = list(card.alternatives[: self._bars])
        if not any(other.chosen for other in shown):
            shown[-1:] = [other for other in card.alternatives if other.chosen]
        return shown

    def _head(self, painter: QPainter, card: TokenCard, left: float, right: float, y: float) -> float:
        t = theme.current()
        name, baseline = tr("id {token:,}", token=card.token), y + theme.px(20) - self.strong.descent
        taken = self.small.width(name)
        self.small.say(painter, right - taken, baseline, name, t.secondary)
        face, color, words = self.small, t.secondary, NO_TEXT
        if card.text:
            face, color, words = self.strong, t.text, visible(card.text)
        face.say(painter, left, baseline, face.cut(words, right - left - taken - theme.px(10)), color)
        rank, numbers = rank_words(card), probability_words(card)
        y = self._say(painter, [f"{numbers}  ·  {rank}" if rank else numbers], t.text, left, y + theme.px(26))
        return y + theme.px(4)

    def _say(self, painter: QPainter, lines: list[str], color: QColor, left: float, y: float) -> float:
        for line in lines:
            self.small.say(painter, left, self.small.baseline(y, self._line), line, color)
            y += self._line
        return y

    def _bar(self, painter: QPainter, other: Alternative, box: QRectF) -> None:
        """One alternative: a mark where it was chosen, its text, its share as a bar and in words."""
        t, px, small, words = theme.current(), theme.px, self.small, share(other.probability)
        bar = QRectF(box.right() - small.width("100.0 %") - px(8 + BAR), box.center().y() - px(3), px(BAR), px(6))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(t.hairline)
        painter.drawRoundedRect(bar, px(2), px(2))
        painter.setBrush(t.accent if other.chosen else theme.faded(t.secondary, 0.8))
        filled = QRectF(bar.topLeft(), QSizeF(max(1.0, px(BAR) * other.probability), px(6)))
        painter.drawRoundedRect(filled, px(2), px(2))
        color, baseline = t.text if other.chosen else t.secondary, small.baseline(box.top(), box.height())
        small.say(painter, box.right(), baseline, words, color, before=1)
        if other.chosen:
            self.mono.say(painter, box.left(), baseline, "▸", t.accent)
        begin, word = box.left() + px(12), visible(other.text) if other.text else "∅"
        self.mono.say(painter, begin, baseline, self.mono.cut(word, bar.left() - begin - px(6)), color)
