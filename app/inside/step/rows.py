"""The rows of a step as a painted list: as many columns as there is room for, the visible rows only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen

from app.inside.step.marks import mark_of, request_color
from app.inside.step.story import WASTE_ABOUT, StepRow, StepStory
from app.plot.patterns import paint_mark
from app.ui import theme
from app.ui.font_face import FontFace
from app.ui.painted import Painted

HIGH = 22
EDGE = 8  # left and right of a row's words
MARK = (16, 10)
MOST_SPARE = 200  # that the token may have beyond what it needs


@dataclass(frozen=True, slots=True)
class RowColumn:
    """`words` of a row; `widest` is what its width is made for, so that it changes seldom from step to step. A lower
    `rank` stays longer where room is scarce."""

    name: str
    title: str
    tip: str
    words: Callable[[StepRow], str]
    widest: Callable[[StepStory], str]
    rank: int
    right: bool = True


OUT = RowColumn(
    "out", "token out", "the text of the token that was drawn, and its probability: e^log-probability, of the model's "
    "own distribution, before temperature and cuts", lambda r: r.out_text, lambda s: "“ story”", 0, False,
)  # fmt: skip
COLUMNS = (
    RowColumn("slot", "slot", "the row's place among the running", lambda r: f"{r.slot + 1:,}", lambda s: "256", 6),
    RowColumn(
        "request", "request", "the request, and which of its samples", lambda r: r.name, lambda s: s.widest_name, 0,
        False,
    ),
    RowColumn(
        "kind", "what", "prefill or a chunk of it: hatched · decode: solid · held: grey · thrown away: crossed",
        lambda r: r.kind_words, lambda s: "chunk 8 of 8" if s.chunked else "prefill", 1, False,
    ),
    RowColumn(
        "positions", "positions", "where the row's tokens stand in their sequence: [first, first + count)",
        lambda r: r.positions, lambda s: f"{s.widest_position:,}…{s.widest_position:,}", 2,
    ),
    RowColumn(
        "in", "in", "tokens that were computed for the row: count", lambda r: f"{r.count:,}",
        lambda s: f"{s.widest_position:,}", 3,
    ),
    OUT,
    RowColumn(
        "cached", "cached", "tokens before the row whose K and V are there already: first; found: those of a shared "
        "prefix or sample, which the request never computed", lambda r: r.cached_words,
        lambda s: f"{s.widest_position:,}" + f" · {s.widest_position:,} found" * s.shares, 4,
    ),
    RowColumn(
        "padding", "padding", "pad tokens computed beside the row", lambda r: f"{r.padding:,}" if r.padding else "–",
        lambda s: f"{s.widest_position:,}", 7,
    ),
    RowColumn(
        "wasted", "wasted", "tokens computed for nothing, and why", lambda r: r.wasted_words or "–",
        lambda s: f"{s.widest_position:,} past its end", 5,
    ),
)  # fmt: skip


class StepRows(Painted):
    """`high` says how much height it wants; the head of the columns stays at the top of what is visible."""

    request_chosen = Signal(int)
    row_wanted = Signal(int, int)  # top and height, in its own pixels, of what should be seen

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("step_rows")
        self.setAccessibleName("Rows of the step")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._story: StepStory | None = None
        self._selected = -1
        self._at = -1  # the row of the selection
        self._places: list[tuple[RowColumn, float, float]] = []
        self.restyle()

    def restyle(self) -> None:
        """Takes up the theme's fonts at the current zoom."""
        self._plain, self._strong = map(FontFace, (theme.ui(12), theme.ui(12, 600)))
        self._mono, self._tiny = map(FontFace, (theme.mono(12), theme.ui(11, 600)))
        self._places = []
        self.update()

    @property
    def row_high(self) -> int:
        return theme.px(HIGH)

    @property
    def high(self) -> int:
        """Pixels for all rows and the head."""
        count = len(self._story) if self._story is not None else 0
        return self.row_high * (count + 1) if count else 0

    def show_story(self, story: StepStory | None, selected: int) -> None:
        """Another step, or another selection."""
        self._story, self._selected, self._places = story, selected, []
        mine = story.rows_of(selected) if story is not None and selected >= 0 else []
        if self._at not in mine:
            self._at = mine[0] if mine else -1
        if story is not None:
            said = f"{len(story):,} rows" + (f", row {self._at + 1:,}: {self.row_text(self._at)}" if mine else "")
            self.setAccessibleDescription(said)
        self.update()

    def resizeEvent(self, event: object) -> None:
        self._places = []

    # -- columns --------------------------------------------------------------------------------------------------

    def columns(self) -> list[tuple[RowColumn, float, float]]:
        """The columns that fit, in order, with their left and right edges; the token takes what is left."""
        if not self._places and self._story is not None:
            self._places = self._fit()
        return self._places

    def _fit(self) -> list[tuple[RowColumn, float, float]]:
        gap, room = theme.px(14), self.width() - 2 * theme.px(EDGE)
        assert self._story is not None
        known = [c for c in COLUMNS if c.name != "padding" or self._story.times.rows.rectangle]
        wide = {c.name: self._wide(c) for c in known}
        kept: list[RowColumn] = []
        wasted = bool(self._story.step.wasted.any())
        for column in sorted(known, key=lambda c: 2.5 if wasted and c.name == "wasted" else c.rank):
            if not column.rank or sum(wide[c.name] + gap for c in kept) + wide[column.name] <= room:
                kept.append(column)
        spare = min(room - sum(wide[c.name] for c in kept) - gap * (len(kept) - 1), theme.px(MOST_SPARE))
        places, x = [], float(theme.px(EDGE))
        for column in known:
            if column in kept:
                right = x + wide[column.name] + (spare if column is OUT else 0)
                places.append((column, x, right))
                x = right + gap
        return places

    def _wide(self, column: RowColumn) -> float:
        face = self._mono if column is OUT else self._plain
        extra = {"request": theme.px(14), "kind": theme.px(MARK[0] + 6), "out": theme.px(44)}.get(column.name, 0)
        assert self._story is not None
        return max(face.width(column.widest(self._story)) + extra, self._tiny.width(column.title))

    # -- drawing --------------------------------------------------------------------------------------------------

    def _top(self) -> int:
        """Where what is visible begins."""
        return max(0, self.visibleRegion().boundingRect().top()) if self.isVisible() else 0

    def paintEvent(self, event: QPaintEvent) -> None:
        story = self._story
        if story is None or not len(story):
            return
        painter = QPainter(self)
        high, top = self.row_high, self._top()
        first = max(0, event.rect().top() // high - 1)
        last = min(len(story), event.rect().bottom() // high + 1)
        for at in range(first, last):
            if (at + 2) * high > top + high:
                self._draw_row(painter, at, (at + 1) * high)
        self._draw_head(painter, top)
        painter.end()

    def _draw_head(self, painter: QPainter, top: int) -> None:
        t, high = theme.current(), self.row_high
        painter.fillRect(QRect(0, top, self.width(), high), t.panel)
        painter.fillRect(QRect(0, top + high - 1, self.width(), 1), t.hairline)
        painter.setFont(self._tiny.font)
        painter.setPen(t.secondary)
        baseline = top + high / 2 + self._tiny.middle
        for column, left, right in self.columns():
            x = right - self._tiny.width(column.title) if column.right else left
            self._tiny.draw(painter, x, baseline, column.title)

    def _draw_row(self, painter: QPainter, at: int, top: int) -> None:
        assert self._story is not None
        t, high, px = theme.current(), self.row_high, theme.px
        row = self._story.row(at)
        mine = row.request == self._selected
        if mine:
            painter.fillRect(QRect(0, top, self.width(), high), t.hover)
            painter.fillRect(QRect(0, top, px(3), high), t.accent)
        if at == self._at and self.hasFocus():
            painter.setPen(QPen(t.accent, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(QRectF(0.5, top + 0.5, self.width() - 1, high - 1))
        middle = top + high / 2
        baseline = middle + self._plain.middle
        color = request_color(row.request, self._selected)
        for column, left, right in self.columns():
            match column.name:
                case "request":
                    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
                    painter.setPen(Qt.PenStyle.NoPen)
                    painter.setBrush(color)
                    painter.drawEllipse(QPointF(left + px(4), middle), px(4), px(4))
                    painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
                    self._say(painter, self._strong, left + px(14), baseline, row.name)
                case "kind":
                    box = QRectF(left, round(middle - px(MARK[1]) / 2), px(MARK[0]), px(MARK[1]))
                    paint_mark(painter, box, color, mark_of(row))
                    self._say(painter, self._plain, box.right() + px(6), baseline, row.kind_words)
                case "out":
                    self._draw_out(painter, row, left, right, baseline)
                case _:
                    words = column.words(row)
                    face = self._plain
                    words = face.cut(words, right - left)
                    x = right - face.width(words) if column.right else left
                    quiet = words == "–" or column.name in ("slot", "positions")
                    warn = column.name == "wasted" and row.wasted
                    self._say(painter, face, x, baseline, words, t.warn if warn else t.secondary if quiet else t.text)

    def _draw_out(self, painter: QPainter, row: StepRow, left: float, right: float, baseline: float) -> None:
        t, note = theme.current(), row.out_note
        words = row.out_text
        if not words:
            self._say(painter, self._plain, left, baseline, "–", t.secondary)
            return
        one = len(row.tokens) == 1
        wide = self._plain.width("100 %" if one else note)
        room = right - left - wide - theme.px(8)
        if one:
            room = min(room, self._mono.width("“ a long word”"))
        quoted = words.startswith("“")
        face = self._mono if quoted else self._plain
        words = face.cut(words, room)
        self._say(painter, face, left, baseline, words, t.text if quoted else t.secondary)
        x = left + room + theme.px(8)
        self._say(painter, self._plain, x + wide - self._plain.width(note), baseline, note, t.secondary)

    def _say(
        self, painter: QPainter, face: FontFace, x: float, baseline: float, words: str, color: QColor | None = None
    ) -> None:
        painter.setFont(face.font)
        painter.setPen(color or theme.current().text)
        face.draw(painter, x, baseline, words)

    # -- choosing -------------------------------------------------------------------------------------------------

    def row_at(self, y: float) -> int:
        """The row at a height; -1 for the head and below the last."""
        at = int(y // self.row_high) - 1
        if self._story is None or not 0 <= at < len(self._story) or y < self._top() + self.row_high:
            return -1
        return at

    def row_text(self, at: int) -> str:
        """A row as a sentence, for the tip and for those who hear it."""
        assert self._story is not None
        row = self._story.row(at)
        parts = [
            f"{row.name} in slot {row.slot + 1:,}",
            row.kind_words,
            f"positions {row.positions}",
            f"{row.count:,} in",
        ]
        if row.tokens:
            parts.append(f"{row.out_text} {row.out_note}".strip())
        if row.first:
            parts.append(f"{row.first:,} cached before" + (f", {row.reused:,} of them found" if row.reused else ""))
        if row.padding:
            parts.append(f"{row.padding:,} padding")
        if row.wasted:
            parts.append(f"{row.wasted:,} wasted: {WASTE_ABOUT[row.waste]}")
        return " · ".join(parts)

    def _choose(self, at: int) -> None:
        if self._story is None or not len(self._story):
            return
        self._at = min(max(at, 0), len(self._story) - 1)
        self.row_wanted.emit((self._at + 1) * self.row_high, self.row_high)
        self.request_chosen.emit(int(self._story.step.request[self._at]))
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        at = self.row_at(event.position().y())
        if at >= 0:
            self._choose(at)
        elif self._story is not None and event.position().y() > self.high:
            self.request_chosen.emit(-1)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        count = len(self._story) if self._story is not None else 0
        page = max(1, self.visibleRegion().boundingRect().height() // self.row_high - 2)
        moves = {
            Qt.Key.Key_Up: self._at - 1 if self._at >= 0 else count - 1, Qt.Key.Key_Down: self._at + 1,
            Qt.Key.Key_PageUp: self._at - page, Qt.Key.Key_PageDown: self._at + page, Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: count - 1,
        }  # fmt: skip
        if event.key() in moves:
            self._choose(moves[Qt.Key(event.key())])
        elif event.key() == Qt.Key.Key_Escape and self._selected >= 0:
            self.request_chosen.emit(-1)
        else:
            super().keyPressEvent(event)

    def tip(self, at: QPointF) -> str:
        if self._story is None:
            return ""
        if 0 <= at.y() - self._top() < self.row_high:
            return next((column.tip for column, left, right in self.columns() if left <= at.x() <= right), "")
        row = self.row_at(at.y())
        return self.row_text(row).replace(" · ", "\n") if row >= 0 else ""
