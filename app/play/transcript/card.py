"""The card of one token, laid over the window beside the token: its numbers, and what else could have come."""

from __future__ import annotations

import math

from PySide6.QtCore import QPoint, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app.play.transcript.tokens import Alternative, TokenCard, visible
from app.ui import theme
from app.ui.font_face import FontFace
from app.words import duration

WIDE = 264
PAD = 10
MOST_BARS = 8
BAR = 64  # pixels of a certain token's bar
HOW = "Alternatives were not recorded. Set “Alternatives” under Sampling (logprobs) before sending."
ENDED = "came with the end of its request, after its last step"


def share(probability: float) -> str:
    """A probability in words: "62.4 %", "0.03 %", "< 0.01 %"."""
    percent = 100 * probability
    if percent < 0.01:
        return "< 0.01 %"
    return f"{percent:.1f} %" if percent >= 0.95 else f"{percent:.2f} %"


def rank_words(card: TokenCard) -> str:
    """The token's rank among what was recorded; empty where nothing was."""
    if card.rank is not None:
        return f"rank {card.rank}"
    recorded = len(card.alternatives) - 1
    return f"rank > {recorded}" if recorded > 0 else ""


def wait_words(card: TokenCard) -> str:
    """TTFT or ITL, and with how many others it came."""
    words = f"{'TTFT' if card.first else 'ITL'} {duration(card.wait)}"
    if card.together > 1:
        words += f", with {card.together - 1:,} others" if card.together > 2 else ", with another one"
    return words


def card_words(card: TokenCard, origin: float) -> list[str]:
    """The facts of a token that stand below its alternatives, a line each."""
    place = f"token {card.index + 1:,} of {card.count:,}  ·  position {card.position:,}"
    step = f"step {card.step:,}" if card.step is not None else ENDED
    return [wait_words(card), place, f"{step}  ·  at {card.time - origin:,.3f} s"]


class TokenCardView(QWidget):
    """Shows a card at a place of the window; takes no clicks and no focus. Its words are its accessible name."""

    def __init__(self, owner: QWidget) -> None:
        super().__init__(owner)
        self.setObjectName("token_card")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._owner = owner
        self.card: TokenCard | None = None
        self.hide()
        self.restyle()

    def restyle(self) -> None:
        """Takes the theme's fonts at the current zoom."""
        self._strong, self._small, self._mono = map(FontFace, (theme.mono(14, 600), theme.ui(12), theme.mono(12)))
        self._lines: list[str] = []
        self._note: list[str] = []
        self.update()

    def show_card(self, card: TokenCard, origin: float, anchor: QRect) -> None:
        """Shows a card below `anchor`, in the owner's coordinates, or above it where there is no room."""
        self.card = card
        self._lines = card_words(card, origin)
        self._note = [] if card.alternatives else self._wrapped(HOW)
        text = visible(card.text) or "no text of its own"
        parts = [f"{text}, probability {share(card.probability)}", rank_words(card), *self._lines, *self._note]
        parts += [f"{visible(other.text)} {share(other.probability)}" for other in card.alternatives]
        self.setAccessibleName("; ".join(part for part in parts if part))
        window = self._owner.window()
        if self.parentWidget() is not window:
            self.setParent(window)
        self.resize(theme.px(WIDE), self._height())
        corner = self._owner.mapTo(window, anchor.bottomLeft()) if self._owner is not window else anchor.bottomLeft()
        gap = theme.px(6)
        y = corner.y() + gap
        if y + self.height() > window.height() - gap:
            above = corner.y() - anchor.height() - gap - self.height()
            y = above if above >= gap else max(gap, window.height() - gap - self.height())
        x = min(max(gap, corner.x() - theme.px(PAD)), max(gap, window.width() - gap - self.width()))
        self.move(QPoint(x, y))
        self.show()
        self.raise_()
        self.update()

    def drop(self) -> None:
        """Shows nothing; belongs to its owner again."""
        self.card = None
        self.hide()
        if self.parentWidget() is not self._owner:
            self.setParent(self._owner)

    def _wrapped(self, text: str) -> list[str]:
        room = theme.px(WIDE - 2 * PAD)
        lines = [""]
        for word in text.split():
            line = f"{lines[-1]} {word}".strip()
            if self._small.width(line) <= room:
                lines[-1] = line
            else:
                lines.append(word)
        return lines

    @property
    def _line(self) -> int:
        return max(theme.px(18), math.ceil(self._small.height))

    @property
    def _bars(self) -> int:
        return min(MOST_BARS, len(self.card.alternatives)) if self.card is not None else 0

    def _height(self) -> int:
        assert self.card is not None
        rows = 1 + (self._bars or len(self._note)) + len(self._lines)
        return theme.px(2 * PAD) + theme.px(26) + theme.px(4) + theme.px(6) + theme.px(7) + rows * self._line

    def paintEvent(self, event: QPaintEvent) -> None:
        card = self.card
        if card is None:
            return
        t, px = theme.current(), theme.px
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(theme.over(t.edge, t.raised), 1))
        painter.setBrush(t.raised)
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), px(6), px(6))
        left, right = float(px(PAD)), float(self.width() - px(PAD))
        y = float(px(PAD))
        y = self._head(painter, card, left, right, y)
        if self._bars:
            for other in self._shown(card):
                self._bar(painter, other.text, other.probability, other.chosen, left, right, y)
                y += self._line
        else:
            y = self._say(painter, self._note, t.secondary, left, y)
        y += px(6)
        painter.fillRect(QRectF(left, y, right - left, 1), t.hairline)
        y += px(7)
        self._say(painter, self._lines, t.secondary, left, y)
        painter.end()

    def _shown(self, card: TokenCard) -> list[Alternative]:
        """As many alternatives as there is room for; the chosen one is always among them."""
        shown = list(card.alternatives[: self._bars])
        if not any(other.chosen for other in shown):
            shown[-1:] = [other for other in card.alternatives if other.chosen]
        return shown

    def _head(self, painter: QPainter, card: TokenCard, left: float, right: float, y: float) -> float:
        t = theme.current()
        name = f"id {card.token:,}"
        baseline = y + theme.px(20) - self._strong.descent
        painter.setFont(self._small.font)
        painter.setPen(t.secondary)
        self._small.draw(painter, right - self._small.width(name), baseline, name)
        strong = self._small if not card.text else self._strong
        painter.setFont(strong.font)
        painter.setPen(t.text if card.text else t.secondary)
        room = right - left - self._small.width(name) - theme.px(10)
        words = visible(card.text) if card.text else "no text of its own"
        strong.draw(painter, left, baseline, strong.cut(words, room))
        y += theme.px(26)
        rank = rank_words(card)
        numbers = f"probability {share(card.probability)}"
        return self._say(painter, [f"{numbers}  ·  {rank}" if rank else numbers], t.text, left, y) + theme.px(4)

    def _say(self, painter: QPainter, lines: list[str], color: QColor, left: float, y: float) -> float:
        painter.setFont(self._small.font)
        painter.setPen(color)
        for line in lines:
            self._small.draw(painter, left, y + (self._line + self._small.ascent - self._small.descent) / 2, line)
            y += self._line
        return y

    def _bar(
        self, painter: QPainter, text: str, probability: float, chosen: bool, left: float, right: float, y: float
    ) -> None:
        """One alternative: a mark where it was chosen, its text, its share as a bar and in words."""
        t, px = theme.current(), theme.px
        middle = y + self._line / 2
        words = share(probability)
        number = right - self._small.width("100.0 %")
        bar = number - px(8 + BAR)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(t.hairline)
        painter.drawRoundedRect(QRectF(bar, middle - px(3), px(BAR), px(6)), px(2), px(2))
        painter.setBrush(t.accent if chosen else theme.faded(t.secondary, 0.8))
        painter.drawRoundedRect(QRectF(bar, middle - px(3), max(1.0, px(BAR) * probability), px(6)), px(2), px(2))
        painter.setFont(self._small.font)
        painter.setPen(t.text if chosen else t.secondary)
        baseline = y + (self._line + self._small.ascent - self._small.descent) / 2
        self._small.draw(painter, right - self._small.width(words), baseline, words)
        painter.setFont(self._mono.font)
        if chosen:
            painter.setPen(t.accent)
            self._mono.draw(painter, left, baseline, "▸")
            painter.setPen(t.text)
        begin = left + px(12)
        word = visible(text) if text else "∅"
        self._mono.draw(painter, begin, baseline, self._mono.cut(word, bar - begin - px(6)))
