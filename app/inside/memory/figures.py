"""The pool at one moment in numbers: its kinds, and what another way of keeping K and V would hold."""

import math
from dataclasses import dataclass

from PySide6.QtCore import QLineF, QPointF, QRect, QRectF, QSize
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QSizePolicy

from app.inside.memory.area import dash, fill_kinds
from app.inside.memory.series import KIND_TITLES, KINDS, MemorySeries, Moment
from app.language import tr
from app.plot import patterns
from app.ui.look import theme
from app.ui.look.font_face import Face, FontFace
from app.ui.painted import Painted
from app.words import bytes_words
from engine.memory import kv_capacity

WIDTH = 292
TIPS = {
    "used": tr("used: holds K and V of computed tokens"),
    "reserved": tr("reserved: held for tokens still to come, under max_tokens"),
    "internal": tr("internal fragmentation: held, can never be filled"),
    "external": tr("external fragmentation: free, but of no use to the head of the queue"),
    "free": tr("free = pool − used − reserved − internal − external"),
}
HELD = tr("used + reserved + internal, as the engine recorded them")
TO_LIMIT = tr("computed: Σ min(prompt + max_tokens, context) over the branches that have a slot")
FITS = tr("⌊blocks of the pool / ⌈tokens / block size⌉⌋")
POOL = tr("pool")


@dataclass(frozen=True, slots=True)
class Line:
    """A way of keeping K and V: `name`, tokens, `mark` (its sign), and the formula for its tooltip."""

    name: str
    tokens: int
    mark: str
    tip: str


def compared(series: MemorySeries, moment: Moment) -> tuple[str, list[Line]]:
    """What stands beside what is held: a caption, and its lines."""
    context = series.context
    held = Line(tr("held now"), moment.held, "held", HELD)
    to_limit = Line(tr("to max_tokens"), moment.to_limit, "dash", TO_LIMIT)
    formula = tr(
        "computed: branches that have a slot × {context:,}, as servers before PagedAttention reserved", context=context
    )
    to_context = Line(tr("to context {context:,}", context=context), moment.to_context, "", formula)
    formula = tr(
        "computed: Σ ⌈computed tokens / {size}⌉ × {size} over the branches that still get tokens",
        size=series.block_size,
    )
    paged = Line(tr("paged"), moment.paged, "dash", formula)
    last = [to_context] if context else []
    if not series.keeps:
        return tr("With a cache · computed"), [paged, to_limit, *last]
    if series.paged:
        return tr("If contiguous · computed"), [held, to_limit, *last]
    return tr("If paged · computed"), [held, paged, *last]


def fits_words(series: MemorySeries, moment: Moment | None) -> tuple[str, ...]:
    """How many requests the pool has room for, from the longest wording to the shortest."""
    header, context = series.header, series.context
    if header is None or not header.blocks:
        return ("",)
    blocks, size = header.blocks, series.block_size
    mean = moment.done_tokens / moment.done if moment is not None and moment.done else 0.0
    whole = kv_capacity(blocks, size, context) if context else 0
    if not mean:
        return (tr("Fits {n:,} × {tokens:,} tokens (context)", n=whole, tokens=context),) if context else ("",)
    some = kv_capacity(blocks, size, max(1, round(mean)))
    alone = tr("Fits {n:,} × {mean:,.0f} tokens (mean so far)", n=some, mean=mean)
    if not context:
        return (alone,)
    longest = tr("{n:,} × {tokens:,} tokens (context)", n=whole, tokens=context)
    brief = tr("{n:,} × {tokens:,} (context)", n=whole, tokens=context)
    return (
        f"{alone} · {longest}",
        " · ".join((tr("Fits {n:,} × {mean:,.0f} tokens (mean)", n=some, mean=mean), brief)),
        " · ".join((tr("Fits {n:,} × {mean:,.0f} (mean)", n=some, mean=mean), brief)),
        alone,
    )


class MemoryLedger(Painted):
    """Painted line by line, as many as there is room for."""

    face, head = Face(11), Face(11, 600)

    def __init__(self) -> None:
        super().__init__("memory_ledger", tr("KV pool at the cursor"))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.series = MemorySeries()
        self.moment: Moment | None = None
        self._rows: list[tuple[float, str]] = []  # the foot of each line, and its tip
        self._said: object = None

    @property
    def pitch(self) -> int:
        """From line to line."""
        return math.ceil(self.face.height) + theme.px(1)

    def height_of(self, lines: int) -> int:
        """How much room so many lines take, with the gap before what is computed."""
        return lines * self.pitch + theme.px(5)

    def sizeHint(self) -> QSize:
        return QSize(theme.px(WIDTH), self.height_of(10))

    def show_moment(self, series: MemorySeries, moment: Moment | None) -> None:
        said = (id(series), series.header, moment)
        if said != self._said:
            self._said, self.series, self.moment = said, series, moment
            self.setAccessibleDescription(self._words())
            self.update()

    def _words(self) -> str:
        series, moment = self.series, self.moment
        if moment is None:
            return tr("Nothing is held.")
        size, pool = series.token_bytes, max(1, series.pool)
        kinds = [(kind, getattr(moment, kind)) for kind in (*KINDS, "free")]
        parts = [
            tr(
                "{kind} {tokens:,} tokens, {bytes}, {share:.1%}",
                kind=KIND_TITLES[kind],
                tokens=n,
                bytes=bytes_words(n * size),
                share=n / pool,
            )
            for kind, n in kinds
        ]
        caption, lines = compared(series, moment)
        parts += [f"{caption}: " + ", ".join(f"{line.name} {bytes_words(line.tokens * size)}" for line in lines)]
        return ". ".join([*parts, fits_words(series, moment)[0]])

    # -- painting -------------------------------------------------------------------------------------------------

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t, pitch = theme.current(), self.pitch
        painter.fillRect(self.rect(), t.panel)
        self._rows = []
        series = self.series
        if series.header is None:
            return
        moment = self.moment or Moment(0.0, -1, series.pool, *(0,) * 11)
        y = 0.0
        for kind in (*KINDS, "free"):
            self._kind(painter, kind, moment, y)
            y += pitch
            more = f"\n{fits_words(series, self.moment)[0]}" if kind == "free" else ""
            self._rows.append((y, TIPS[kind] + more))
        room = int((self.height() - y - theme.px(5)) // pitch)
        if room < 3:
            return
        y += theme.px(5)
        caption, lines = compared(series, moment)
        if room < 1 + len(lines):
            lines = [line for line in lines if line.mark != "held"]
        self._text(painter, self.head, t.secondary, 0, y, self.head.cut(caption, self.width()))
        y += pitch
        self._rows.append((y, lines[0].tip))
        self._compare(painter, lines[: room - 1], moment, y, self.head.width(caption))
        for line in lines[: room - 1]:
            y += pitch
            self._rows.append((y, line.tip))
        if self.height() >= y + pitch + theme.px(3):
            y += theme.px(3)
            wordings = fits_words(series, moment if moment.step >= 0 else None)
            words = next((w for w in wordings if self.face.width(w) <= self.width()), wordings[-1])
            self._text(painter, self.face, t.secondary, 0, y, self.face.cut(words, self.width()))
            self._rows.append((y + pitch, FITS))

    def _text(self, painter: QPainter, face: FontFace, color: QColor, x: float, y: float, text: str) -> None:
        face.say(painter, x, y + face.ascent, text, color)

    def _kind(self, painter: QPainter, kind: str, moment: Moment, y: float) -> None:
        t, px, face, size = theme.current(), theme.px, self.face, self.series.token_bytes
        tokens = getattr(moment, kind)
        box = round(face.cap) + px(1)
        top = y + face.ascent - box + px(0.5)
        patterns.fill(painter, QRectF(0, round(top), box + px(6), box), kind)
        color = t.text if tokens or kind == "free" else t.faint
        share = tokens / max(1, self.series.pool)
        right = float(self.width())
        for words, width in (
            (f"{100 * share:.1f} %", face.width("100.0 %") + px(8)),
            (bytes_words(tokens * size), face.width("00.0 MB") + px(8)),
            (tr("{n:,} tok", n=tokens), face.width(tr("{n:,} tok", n=self.series.pool)) + px(8)),
        ):
            self._text(painter, face, color, right - face.width(words), y, words)
            right -= width
        name, left = KIND_TITLES[kind], box + px(12)
        cached = tr("free, {bytes} cached", bytes=bytes_words(moment.cached * size))
        if kind == "free" and moment.cached and face.width(cached) <= right - left:
            name = cached
        self._text(painter, face, t.text if color == t.text else t.secondary, left, y, face.cut(name, right - left))

    def _compare(self, painter: QPainter, lines: list[Line], moment: Moment, y: float, captioned: float) -> None:
        """The lines with their bars, and the pool's size across; the caption above is `captioned` pixels wide."""
        t, px, face, series = theme.current(), theme.px, self.face, self.series
        size, box = series.token_bytes, round(face.cap) + px(1)
        left = box + px(12)
        bar = left + max((face.width(line.name) for line in lines), default=0.0) + px(10)
        ratios = face.width("000.0 ×") + px(8)
        right = self.width() - ratios - face.width("000 MB") - px(8)
        most = max([line.tokens for line in lines] + [1])
        for line in lines:
            self._text(painter, face, t.text, left, y, line.name)
            middle = round(y + face.ascent - face.cap / 2)
            if line.mark == "dash":
                painter.setPen(dash(t.text))
                painter.drawLine(QLineF(0, middle + 0.5, box + px(6), middle + 0.5))
            words = bytes_words(line.tokens * size)
            self._text(painter, face, t.text, self.width() - ratios - face.width(words), y, words)
            if line.mark != "held" and moment.held:
                ratio = line.tokens / moment.held
                words = f"{ratio:.1f} ×" if ratio >= 0.95 else f"{ratio:.2f} ×"
                self._text(painter, face, t.secondary, self.width() - face.width(words), y, words)
            thick = px(5)
            if right - bar > px(16):
                whole = QRectF(bar, middle - thick / 2, max(1.0, line.tokens / most * (right - bar)), thick)
                self._bar(painter, whole, line, moment)
            y += self.pitch
        if 0 < series.pool < most and right - bar > px(16):
            x = round(bar + series.pool / most * (right - bar))
            top = y - len(lines) * self.pitch
            painter.fillRect(QRectF(x, top, 1, len(lines) * self.pitch - px(2)), t.text)
            word = face.width(POOL) / 2
            if x - word > captioned + px(8):
                self._text(painter, face, t.secondary, min(x - word, self.width() - 2 * word), top - self.pitch, POOL)

    def _bar(self, painter: QPainter, whole: QRectF, line: Line, moment: Moment) -> None:
        t = theme.current()
        if line.mark != "held":
            painter.fillRect(whole, t.secondary if line.mark else theme.over(t.edge, t.panel))
            return
        fill_kinds(painter, whole, moment, KINDS[:3], max(1, moment.held))

    def tip(self, at: QPointF) -> str:
        return next((tip for foot, tip in self._rows if at.y() < foot), "")
