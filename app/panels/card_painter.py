"""Paints one stream card. Fonts and metrics are made once a theme and zoom; text is wrapped as it grows."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPainterPath, QPen

from app import theme
from app.panels.request_words import duration, number, state_color, state_words, title
from app.panels.wrapped_tail import WrappedTail
from engine import FinishReason, RequestView, State

CACHED = 1024


def faded(color: QColor, alpha: float) -> QColor:
    """The same colour, so much of it."""
    result = QColor(color)
    result.setAlphaF(alpha)
    return result


def wrapped(text: str, metrics: QFontMetricsF, width: float, lines: int) -> list[str]:
    """The first `lines` lines of a short text, the last one elided."""
    result, line = [], ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if line and metrics.horizontalAdvance(longer) > width:
            result.append(line)
            longer = word
            if len(result) == lines:
                result[-1] = metrics.elidedText(result[-1] + " " + text, Qt.TextElideMode.ElideRight, width)
                return result
        line = longer
    if line:
        result.append(metrics.elidedText(line, Qt.TextElideMode.ElideRight, width))
    return result


def head_numbers(view: RequestView) -> tuple[str, str]:
    """Tokens a second and time to first token, in words; empty until they can be told."""
    rate, ttft = view.tokens_per_second, view.ttft
    return (f"{number(rate)} tok/s" if rate is not None else "", duration(ttft) if ttft is not None else "")


class CardPainter:
    """Draws cards of one width. Make a new one when theme, zoom or width change."""

    def __init__(self, width: float, lines: int) -> None:
        self.theme = theme.current()
        px = theme.px
        self.pad, self.radius, self.width, self.lines = px(12), px(6), width, lines
        self.strong, self.small, self.mono = theme.ui(12.5, 600), theme.ui(12), theme.mono()
        self.strong_metrics, self.small_metrics = QFontMetricsF(self.strong), QFontMetricsF(self.small)
        self.mono_metrics = QFontMetricsF(self.mono)
        self.line_height = max(px(17), round(self.mono_metrics.lineSpacing() * 1.1))
        self.head = px(9) + max(px(17), round(self.small_metrics.height()))
        self.text_top = self.head + px(5)
        self.height = self.text_top + lines * self.line_height + px(12)
        self.hovered = theme.over(faded(self.theme.hover, 0.3), self.theme.panel)
        self._tails: dict[int, WrappedTail] = {}

    @staticmethod
    def height_of(lines: int) -> int:
        """A card's height for so many lines of text."""
        return CardPainter(240, lines).height

    def tail(self, view: RequestView) -> list[str]:
        """The wrapped end of a request's text."""
        tail = self._tails.get(view.request)
        if tail is None:
            if len(self._tails) >= CACHED:
                self._tails.clear()
            tail = self._tails[view.request] = WrappedTail(self.mono, self.width - 2 * self.pad)
        return tail.update(view.text)

    def paint(
        self, painter: QPainter, x: float, y: float, view: RequestView, *, selected: bool, dimmed: bool, hovered: bool
    ) -> None:
        """Draws the card with its top left corner at (x, y). `dimmed` mutes the request's colour."""
        t = self.theme
        box = QRectF(x, y, self.width, self.height)
        painter.setPen(QPen(t.hairline, 1) if not t.dark else Qt.PenStyle.NoPen)
        painter.setBrush(self.hovered if hovered else t.panel)
        painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), self.radius, self.radius)
        self._head(painter, box, view, dimmed)
        self._body(painter, box, view)
        self._foot(painter, box, view, dimmed)
        if selected:
            painter.setPen(QPen(t.accent, 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(box.adjusted(0.75, 0.75, -0.75, -0.75), self.radius, self.radius)

    def _color(self, view: RequestView, dimmed: bool) -> QColor:
        color = theme.request_color(view.request)
        if dimmed or view.state is State.FINISHED:
            return faded(color, 0.55 if self.theme.dark else 0.8)
        return color

    def _head(self, painter: QPainter, box: QRectF, view: RequestView, dimmed: bool) -> None:
        t, px = self.theme, theme.px
        over = view.state is State.FINISHED
        baseline = box.top() + self.head - self.small_metrics.descent() - px(1)
        dot = px(8)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._color(view, dimmed))
        middle = baseline - self.small_metrics.xHeight() / 2 - 0.5
        painter.drawEllipse(QPointF(box.left() + self.pad + dot / 2, middle), dot / 2, dot / 2)
        x = box.left() + self.pad + dot + px(6)
        painter.setFont(self.strong)
        painter.setPen(t.secondary if over else t.text)
        name = str(view.request)
        painter.drawText(QPointF(x, baseline), name)
        x += self.strong_metrics.horizontalAdvance(name) + px(7)
        words = state_words(view)
        words_width = self.small_metrics.horizontalAdvance(words)
        room = box.right() - self.pad - x
        painter.setFont(self.small)
        painter.setPen(t.faint if over and view.reason is not FinishReason.ERROR else t.secondary)
        rate, ttft = head_numbers(view)
        for numbers in (f"{rate} · {ttft}" if rate and ttft else rate or ttft, rate):
            width = self.small_metrics.horizontalAdvance(numbers)
            if numbers and words_width + px(10) + width <= room:
                painter.drawText(QPointF(box.right() - self.pad - width, baseline), numbers)
                break
        else:
            words = self.small_metrics.elidedText(words, Qt.TextElideMode.ElideRight, room)
        painter.setPen(t.faint if over and view.reason is not FinishReason.ERROR else state_color(view, t))
        painter.drawText(QPointF(x, baseline), words)

    def _body(self, painter: QPainter, box: QRectF, view: RequestView) -> None:
        t = self.theme
        x = box.left() + self.pad
        bottom = box.top() + self.text_top + self.lines * self.line_height
        baseline = bottom - (self.line_height - self.mono_metrics.height()) / 2 - self.mono_metrics.descent()
        room = self.lines
        lines = self.tail(view)
        if view.error or not lines:
            room -= self._small_print(painter, x, baseline, view, bool(lines))
        if not lines or room <= 0:
            return
        painter.setFont(self.mono)
        painter.setPen(t.text)
        shown = lines[-room:]
        baseline -= (self.lines - room) * self.line_height
        for i, line in enumerate(shown):
            painter.drawText(QPointF(x, baseline - (len(shown) - 1 - i) * self.line_height), line)

    def _small_print(self, painter: QPainter, x: float, baseline: float, view: RequestView, has_text: bool) -> int:
        """What is said where there is no text yet, or why it ended; returns the lines it took from the foot."""
        t, width = self.theme, self.width - 2 * self.pad
        painter.setFont(self.small)
        if view.error:
            lines = wrapped(view.error, self.small_metrics, width, min(2, self.lines))
            painter.setPen(t.bad)
        else:
            says = {
                State.WAITING: "waiting for a slot",
                State.PREFILL: "reading the prompt …",
                State.PREEMPTED: "gave its memory up, waits to go on",
                State.DECODE: "…",
                State.FINISHED: "no text",
            }
            lines = [says[view.state]]
            painter.setPen(t.secondary)
        for i, line in enumerate(lines):
            painter.drawText(QPointF(x, baseline - (len(lines) - 1 - i) * self.line_height), line)
        if not has_text:
            asked = wrapped(title(view), self.small_metrics, width, max(0, self.lines - len(lines) - 1))
            top = baseline - (self.lines - 1) * self.line_height
            painter.setPen(t.faint)
            for i, line in enumerate(asked):
                painter.drawText(QPointF(x, top + i * self.line_height), line)
        return len(lines)

    def _foot(self, painter: QPainter, box: QRectF, view: RequestView, dimmed: bool) -> None:
        if not view.tokens:
            return
        share = min(1.0, len(view.tokens) / view.params.max_tokens)
        thick = theme.px(2)
        color = self._color(view, dimmed)
        if view.state is State.FINISHED:
            color = self.theme.bad if view.reason is FinishReason.ERROR else self.theme.edge
        clip = QPainterPath()
        clip.addRoundedRect(box, self.radius, self.radius)
        line = QPainterPath()
        line.addRect(QRectF(box.left(), box.bottom() - thick, box.width() * share, thick))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.fillPath(clip.intersected(line), color)
