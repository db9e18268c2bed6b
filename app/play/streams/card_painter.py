"""Paints one stream card. Fonts and metrics are made once a theme and zoom; text is wrapped as it grows."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from app.language import tr
from app.play.states import state_color
from app.play.streams.density import Plan
from app.play.streams.wrapped_tail import WrappedTail, columns_of
from app.ui.look import theme
from app.ui.look.font_face import Face, FontFace, wrapped
from app.words import asked_words, duration, number, state_words, whose_words
from engine.trace import FinishReason, RequestView, SampleView, State

CACHED = 1024
SAYS = {
    State.WAITING: tr("in the queue"),
    State.PREFILL: tr("reading the prompt …"),
    State.PREEMPTED: tr("gave its memory up, waits to go on"),
    State.SWAPPED: tr("its memory waits on the host, to go on"),
    State.DECODE: "…",
    State.FINISHED: tr("no text"),
}


def head_numbers(view: RequestView) -> tuple[str, str]:
    """Tokens a second and time to first token, in words; empty until they can be told."""
    rate, ttft = view.tokens_per_second, view.ttft
    return (
        tr("{rate} tok/s", rate=number(rate)) if rate is not None else "",
        duration(ttft) if ttft is not None else "",
    )


def drafted_spans(sample: SampleView, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of the text between two places that had been drafted, neighbours joined."""
    ends, drafted = sample.text_ends, sample.drafted
    token, open_at = bisect_right(ends, begin), -1
    at = begin
    while at < end and token < len(ends):
        is_drafted = token < len(drafted) and drafted[token]
        if is_drafted and open_at < 0:
            open_at = at
        elif not is_drafted and open_at >= 0:
            yield open_at, at
            open_at = -1
        at, token = min(ends[token], end), token + 1
    if open_at >= 0:
        yield open_at, at


class CardPainter:
    """Draws cards of one plan. Make a new one when theme, zoom or plan change."""

    strong, small = Face(12.5, 600), Face(12)

    def __init__(self, plan: Plan) -> None:
        self.theme, self.plan, look = theme.current(), plan, plan.look
        self.pad, self.radius, self.width, self.lines = theme.px(look.pad), theme.px(6), plan.width, plan.lines
        self.mono, self.line_height, self.head, self.text_top = look.text, look.line_height, look.head, look.text_top
        self.columns = columns_of(self.mono.font, self.width - 2 * self.pad)
        self.height = look.height_of(self.lines)
        self.hovered = theme.over(theme.faded(self.theme.hover, 0.3), self.theme.panel)
        self._tails: dict[int, WrappedTail] = {}
        self._prompts: dict[tuple[int, int], list[str]] = {}

    def tail(self, view: RequestView) -> list[str]:
        """The wrapped end of a request's text."""
        if view.request not in self._tails:
            if len(self._tails) >= CACHED:
                self._tails.clear()
            self._tails[view.request] = WrappedTail(self.mono.font, self.width - 2 * self.pad, self.columns)
        return self._tails[view.request].update(view.text)

    def _asked(self, view: RequestView, lines: int) -> list[str]:
        """The prompt in so many lines."""
        key = view.request, lines
        if key not in self._prompts:
            if len(self._prompts) >= CACHED:
                self._prompts.clear()
            self._prompts[key] = wrapped(asked_words(view)[:400], self.small, self.width - 2 * self.pad, lines)
        return self._prompts[key]

    def paint(
        self, painter: QPainter, place: QRect, view: RequestView, why: str, selected: bool, dimmed: bool, hovered: bool
    ) -> None:
        """Draws the card there. `why` it was refused in the last step, "" where it was not; `dimmed` mutes the
        request's colour."""
        t, box = self.theme, QRectF(place)
        painter.setPen(QPen(t.hairline, 1) if not t.dark else Qt.PenStyle.NoPen)
        painter.setBrush(self.hovered if hovered else t.panel)
        painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), self.radius, self.radius)
        self._head(painter, box, view, dimmed)
        self._body(painter, box, view, why)
        self._foot(painter, box, view, dimmed)
        if selected:
            painter.setPen(QPen(t.accent, 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(box.adjusted(0.75, 0.75, -0.75, -0.75), self.radius, self.radius)

    def _color(self, view: RequestView, dimmed: bool) -> QColor:
        color = theme.request_color(view.request)
        if dimmed or view.state is State.FINISHED:
            return theme.faded(color, 0.55 if self.theme.dark else 0.8)
        return color

    def _head(self, painter: QPainter, box: QRectF, view: RequestView, dimmed: bool) -> None:
        t, px, small = self.theme, theme.px, self.small
        over = view.state is State.FINISHED
        quiet = over and view.reason is not FinishReason.ERROR
        baseline, dot = box.top() + self.head - small.descent - px(1), px(8)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._color(view, dimmed))
        middle = QPointF(box.left() + self.pad + dot / 2, baseline - small.middle - 0.5)
        painter.drawEllipse(middle, dot / 2, dot / 2)
        x, end = box.left() + self.pad + dot + px(6), box.right() - self.pad
        name, words = str(view.request), state_words(view)
        self.strong.say(painter, x, baseline, name, t.secondary if over else t.text)
        start = x + max(self.strong.width(name), self.strong.width("00")) + px(7)
        x += self.strong.width(name) + px(7)
        whose = whose_words(view)
        gap = px(7) if whose else 0
        taken = small.width(words) + small.width(whose) + gap
        if whose and taken > end - x:  # who asked is told before how it ended
            words = words.partition(" · ")[0]
            taken = small.width(words) + small.width(whose) + gap
        rate, ttft = head_numbers(view)
        most = tr("{rate} tok/s", rate="000")
        both = f"{rate} · {ttft}" if rate and ttft else rate or ttft
        fits = [(words, both, f"{most} · 000 ms"), (words, rate, most)]
        if view.reason in (FinishReason.STOP, FinishReason.LENGTH):  # cards of one width tell their rates, all or none
            fits.append((words.partition(" · ")[0], rate, most))
        for wording, numbers, least in fits:
            width = small.width(numbers)
            needed = small.width(wording) + small.width(whose) + gap + px(6) + max(width, small.width(least))
            if numbers and needed <= end - start:
                small.say(painter, end - width, baseline, numbers, t.faint if quiet else t.secondary)
                words = wording
                break
        else:
            words = small.cut(words, end - x)
            whose = small.cut(whose, max(0.0, end - x - small.width(words) - gap)) if whose else ""
        small.say(painter, x, baseline, whose, t.secondary)
        x += small.width(whose) + gap
        small.say(painter, x, baseline, words, t.faint if quiet else state_color(view, t))

    def _body(self, painter: QPainter, box: QRectF, view: RequestView, why: str) -> None:
        if self.plan.look.from_top:
            self._page(painter, box, view, why)
            return
        t, x = self.theme, box.left() + self.pad
        bottom = box.top() + self.text_top + self.lines * self.line_height
        baseline = bottom - (self.line_height - self.mono.height) / 2 - self.mono.descent
        lines = self.tail(view)
        room = self.lines - self._small_print(painter, x, baseline, view, "" if lines else self._says(view, why))
        shown = lines[-room:] if room > 0 else []
        if room == 1 and len(lines) > 1:  # as many of the last words as a line holds
            shown = [self.mono.last_words(" ".join(lines[-2:]), self.width - 2 * self.pad)]
        baseline -= (self.lines - room) * self.line_height
        top = baseline - (len(shown) - 1) * self.line_height
        if shown and shown[-1] is lines[-1]:
            self._mark_drafts(painter, view, x, top, shown)
        self._say(painter, view, x, top, shown)
        # the prompt stays in sight until the text needs its place
        if len(shown) <= room - 2:
            asked = self._asked(view, 2 if len(shown) <= room - 3 else 1)
            self._write(painter, self.small, t.faint, x, baseline - (room - 1) * self.line_height, asked)

    def _page(self, painter: QPainter, box: QRectF, view: RequestView, why: str) -> None:
        """The prompt, and the answer under it from its beginning, or as much of its end as there is room for."""
        t, x, high = self.theme, box.left() + self.pad, self.line_height
        first = box.top() + self.text_top + (high + self.mono.height) / 2 - self.mono.descent
        lines, asked = self.tail(view), self._asked(view, 2)
        words = "" if lines else self._says(view, why)
        room = self.lines - self._small_print(painter, x, first + (self.lines - 1) * high, view, words)
        self._write(painter, self.small, t.secondary, x, first, asked)
        fits = max(1, room - len(asked) - 1)
        shown = [line.lstrip() for line in lines[:1]] + lines[1:] if len(lines) <= fits else lines[-fits:]
        self._mark_drafts(painter, view, x, first + (len(asked) + 1) * high, shown)
        self._say(painter, view, x, first + (len(asked) + 1) * high, shown)

    def _says(self, view: RequestView, why: str) -> str:
        return why if why and view.state is not State.FINISHED else SAYS[view.state]

    def _small_print(self, painter: QPainter, x: float, baseline: float, view: RequestView, words: str) -> int:
        """Why it ended, or these words; returns the lines it took from the foot."""
        color = self.theme.bad if view.error else self.theme.secondary
        words = view.error or words
        most = max(1, min(2, self.lines - bool(view.tokens)))  # what was said has a line at least
        lines = wrapped(words, self.small, self.width - 2 * self.pad, most) if words else []
        self._write(painter, self.small, color, x, baseline - (len(lines) - 1) * self.line_height, lines)
        return len(lines)

    def _mark_drafts(self, painter: QPainter, view: RequestView, x: float, top: float, lines: Sequence[str]) -> None:
        """A ground behind the tokens that had been drafted, in the last lines of the text, the first on `top`."""
        sample = view.samples[0]
        if not sample.drafted or not lines:
            return
        wide, starts = self.mono.width("0"), self._tails[view.request].starts[-len(lines) :]
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.faded(self.theme.good, 0.25 if self.theme.dark else 0.2))
        for i, (line, start) in enumerate(zip(lines, starts)):
            if not line.isascii():
                continue
            y = top + i * self.line_height + self.mono.descent - self.mono.height
            for begin, end in drafted_spans(sample, start, start + len(line)):
                painter.drawRect(QRectF(x + (begin - start) * wide, y, (end - begin) * wide, self.mono.height))

    def _say(self, painter: QPainter, view: RequestView, x: float, baseline: float, lines: Sequence[str]) -> None:
        """The last lines of the text, the first on the baseline; what is only thought is quiet."""
        t, begins = self.theme, view.answer_begins(view.samples[0])
        starts = self._tails[view.request].starts[-len(lines) :]
        if begins == 0 or lines != self._tails[view.request].lines[-len(lines) :]:  # the last words on one line
            self._write(painter, self.mono, t.secondary if begins is None else t.text, x, baseline, lines)
            return
        for i, (line, start) in enumerate(zip(lines, starts)):
            only = len(line) if begins is None else min(max(0, begins - start), len(line))
            self._write(painter, self.mono, t.secondary, x, baseline + i * self.line_height, [line[:only]])
            after = x + self.mono.width(line[:only])
            self._write(painter, self.mono, t.text, after, baseline + i * self.line_height, [line[only:]])

    def _write(
        self, painter: QPainter, face: FontFace, color: QColor, x: float, baseline: float, lines: Sequence[str]
    ) -> None:
        """Lines below each other, the first on the baseline."""
        painter.setFont(face.font)
        painter.setPen(color)
        for i, line in enumerate(lines):
            face.draw(painter, x, baseline + i * self.line_height, line)

    def _foot(self, painter: QPainter, box: QRectF, view: RequestView, dimmed: bool) -> None:
        if not view.tokens:
            return
        share, thick = min(1.0, len(view.tokens) / view.params.max_tokens), theme.px(2)
        color = self._color(view, dimmed)
        if view.state is State.FINISHED:
            color = self.theme.bad if view.reason is FinishReason.ERROR else self.theme.edge
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color)
        painter.setClipRect(QRectF(box.left(), box.bottom() - thick, box.width() * share, thick))
        painter.drawRoundedRect(box, self.radius, self.radius)
        painter.setClipping(False)
