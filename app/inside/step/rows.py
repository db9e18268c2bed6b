"""The rows of a step as a painted list: as many columns as there is room for, the visible rows only."""

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter

from app.inside.step.marks import draw_dot, mark_of, request_color
from app.inside.step.story import WASTE_ABOUT, WASTE_TITLES, StepRow, StepStory, Waste
from app.language import digits, tr
from app.plot.inked import inked
from app.plot.patterns import paint_mark
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted

HIGH = 22
EDGE = 8  # left and right of a row's words
MARK = (16, 10)
MOST_SPARE = 200  # that the token may have beyond what it needs


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A lower `rank` stays longer where room is scarce. `words` of a row; numbers end at the column's `right`."""

    name: str
    rank: int
    tip: str
    words: Callable[[StepRow], str]
    right: bool = True

    @property
    def title(self) -> str:
        return TITLES[self.name]

    def widest(self, story: StepStory) -> str:
        """What its width is made for, so that it changes seldom from step to step."""
        widest, held = story.widest_position, WASTE_TITLES[Waste.PAST]
        number, kept = f"{widest:,}", tr("{n:,} of {all:,}", n=4, all=4)
        made_for = {
            "slot": "256",
            "request": story.widest_name,
            "kind": tr("chunk {n:,} of {all:,}", n=8, all=8) if story.chunked else tr("prefill"),
            "positions": f"{number}…{number}",
            "out": f"“ story of a fox” {kept}" if story.step.drafted.any() else "“ story”",
            "cached": tr("{first:,} · {found:,} found", first=widest, found=widest) if story.shares else number,
            "wasted": f"{number} {held}",
        }
        return made_for.get(self.name, number)


TITLES = {
    "slot": tr("slot"),
    "request": tr("request"),
    "kind": tr("what"),
    "positions": tr("positions"),
    "in": tr("in"),
    "out": tr("token out"),
    "cached": tr("cached"),
    "padding": tr("padding"),
    "wasted": tr("wasted"),
}
KIND = tr(
    "prefill or a chunk of it: hatched · decode, and verify, of drafts: solid · held: grey · thrown away: crossed"
)
POSITIONS = tr("where the row's tokens stand in their sequence: [first, first + count)")
OUT = tr(
    "the text of the token that was drawn, and its probability: e^log-probability, of the model's own distribution, "
    "before temperature and cuts; of a row that verified drafts: those that were kept, the model's own token, and "
    "those that were rejected"
)
CACHED = tr(
    "tokens before the row whose K and V are there already: first; found: those of a shared prefix or sample, which "
    "the request never computed"
)
PADDING = tr("pad tokens computed beside the row")
COLUMNS = (
    RowColumn("slot", 6, tr("the row's place among the running"), lambda row: f"{row.slot + 1:,}"),
    RowColumn("request", 0, tr("the request, and which of its samples"), lambda row: row.name, right=False),
    RowColumn("kind", 1, KIND, lambda row: row.kind_words, right=False),
    RowColumn("positions", 2, POSITIONS, lambda row: row.positions),
    RowColumn("in", 3, tr("tokens that were computed for the row: count"), lambda row: f"{row.count:,}"),
    RowColumn("out", 0, OUT, lambda row: row.out_text, right=False),
    RowColumn("cached", 4, CACHED, lambda row: row.cached_words),
    RowColumn("padding", 7, PADDING, lambda row: digits(f"{row.padding:,}") if row.padding else "–"),
    RowColumn("wasted", 5, tr("tokens computed for nothing, and why"), lambda row: row.wasted_words or "–"),
)


Places = list[tuple[RowColumn, float, float]]  # columns with their left and right edges


class StepRows(Painted):
    """`high` says how much height it wants; the head of the columns stays at the top of what is visible."""

    request_chosen = Signal(int)
    row_wanted = Signal(int, int)  # top and height, in its own pixels, of what should be seen

    sharp = True
    plain, strong, mono, tiny = Face(12), Face(12, 600), Face(12, mono=True), Face(11, 600)

    def __init__(self) -> None:
        super().__init__("step_rows", tr("Rows of the step"), focus=True)
        self._story: StepStory | None = None
        self._selected = -1
        self._at = -1  # the row of the selection

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
        self._story, self._selected = story, selected
        mine = story.rows_of(selected) if story is not None and selected >= 0 else []
        if self._at not in mine:
            self._at = mine[0] if mine else -1
        if story is not None:
            said = tr("{count:,} rows", count=len(story))
            chosen = (tr("row {n:,}: {words}", n=self._at + 1, words=self.row_text(self._at)),) if mine else ()
            self.setAccessibleDescription(", ".join((said, *chosen)))
        self.update()

    # -- columns --------------------------------------------------------------------------------------------------

    def columns(self) -> Places:
        """The columns that fit, in order, with their left and right edges; the token takes what is left."""
        gap, room, story = theme.px(14), self.width() - 2 * theme.px(EDGE), self._story
        assert story is not None
        known = [c for c in COLUMNS if c.name != "padding" or story.times.rows.rectangle]
        wide = {c.name: self._wide(c, story) for c in known}
        kept: list[RowColumn] = []
        wasted = bool(story.step.wasted.any())
        for column in sorted(known, key=lambda c: 2.5 if wasted and c.name == "wasted" else c.rank):
            if not column.rank or sum(wide[c.name] + gap for c in kept) + wide[column.name] <= room:
                kept.append(column)
        spare = min(room - sum(wide[c.name] for c in kept) - gap * (len(kept) - 1), theme.px(MOST_SPARE))
        places, x = [], float(theme.px(EDGE))
        for column in known:
            if column in kept:
                right = x + wide[column.name] + (spare if column.name == "out" else 0)
                places.append((column, x, right))
                x = right + gap
        return places

    def _wide(self, column: RowColumn, story: StepStory) -> float:
        face = self.mono if column.name == "out" else self.plain
        extra = {"request": theme.px(14), "kind": theme.px(MARK[0] + 6), "out": theme.px(44)}.get(column.name, 0)
        return max(face.width(column.widest(story)) + extra, self.tiny.width(column.title))

    # -- drawing --------------------------------------------------------------------------------------------------

    def _top(self) -> int:
        """Where what is visible begins."""
        return max(0, self.visibleRegion().boundingRect().top()) if self.isVisible() else 0

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        story = self._story
        if story is None or not len(story):
            return
        high, top = self.row_high, self._top()
        columns = self.columns()
        first, last = max(0, dirty.top() // high - 1), min(len(story), dirty.bottom() // high + 1)
        for at in range(first, last):
            if (at + 2) * high > top + high:
                self._draw_row(painter, columns, story.row(at), at, (at + 1) * high)
        self._draw_head(painter, columns, top)

    def _draw_head(self, painter: QPainter, columns: Places, top: int) -> None:
        t, high = theme.current(), self.row_high
        painter.fillRect(QRect(0, top, self.width(), high), t.panel)
        painter.fillRect(QRect(0, top + high - 1, self.width(), 1), t.hairline)
        baseline = top + high / 2 + self.tiny.middle
        for column, left, right in columns:
            end = column.right
            self.tiny.say(painter, right if end else left, baseline, column.title, t.secondary, before=float(end))

    def _draw_row(self, painter: QPainter, columns: Places, row: StepRow, at: int, top: int) -> None:
        t, high, px = theme.current(), self.row_high, theme.px
        if row.request == self._selected:
            painter.fillRect(QRect(0, top, self.width(), high), t.hover)
            painter.fillRect(QRect(0, top, px(3), high), t.accent)
        if at == self._at and self.hasFocus():
            with inked(painter, line=t.accent):
                painter.drawRect(QRectF(0.5, top + 0.5, self.width() - 1, high - 1))
        middle = top + high / 2
        baseline = middle + self.plain.middle
        for column, left, right in columns:
            match column.name:
                case "request":
                    draw_dot(painter, row.request, self._selected, left, middle)
                    self.strong.say(painter, left + px(14), baseline, column.words(row), t.text)
                case "kind":
                    box = QRectF(left, round(middle - px(MARK[1]) / 2), px(MARK[0]), px(MARK[1]))
                    paint_mark(painter, box, request_color(row.request, self._selected), mark_of(row))
                    self.plain.say(painter, box.right() + px(6), baseline, column.words(row), t.text)
                case "out":
                    self._draw_out(painter, row, left, right, baseline)
                case name:
                    words = self.plain.cut(column.words(row), right - left)
                    quiet = words == "–" or name in ("slot", "positions")
                    ink = t.warn if name == "wasted" and row.wasted else t.secondary if quiet else t.text
                    self.plain.say(painter, right, baseline, words, ink, before=1)

    def _draw_out(self, painter: QPainter, row: StepRow, left: float, right: float, baseline: float) -> None:
        t, note, words = theme.current(), row.out_note, row.out_text
        if not words:
            self.plain.say(painter, left, baseline, "–", t.secondary)
            return
        if row.drafts:
            self._draw_verified(painter, row, left, right, baseline)
            return
        one, quoted = len(row.tokens) == 1, words.startswith("“")
        wide = self.plain.width("100 %" if one else note)
        room = right - left - wide - theme.px(8)
        if one:
            room = min(room, self.mono.width("“ a long word”"))
        face = self.mono if quoted else self.plain
        face.say(painter, left, baseline, face.cut(words, room), t.text if quoted else t.secondary)
        self.plain.say(painter, left + room + theme.px(8) + wide, baseline, note, t.secondary, before=1)

    def _draw_verified(self, painter: QPainter, row: StepRow, left: float, right: float, baseline: float) -> None:
        """What was drafted and kept, the model's own token, and what was drafted and rejected, struck out."""
        t, mono, note = theme.current(), self.mono, row.out_note
        end = right - self.plain.width(note) - theme.px(8)
        self.plain.say(painter, right, baseline, note, t.secondary, before=1)
        for text, ink, struck in zip(row.verified, (t.good, t.text, t.secondary), (False, False, True)):
            if not text or left >= end:
                continue
            text = mono.cut(text, end - left)
            wide = mono.width(text)
            mono.say(painter, left, baseline, text, ink)
            if struck:
                y = baseline - mono.height / 4
                with inked(painter, line=ink):
                    painter.drawLine(QPointF(left, y), QPointF(left + wide, y))
            left += wide

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
        parts = [tr("{request} in slot {slot:,}", request=row.name, slot=row.slot + 1), row.kind_words]
        parts += [tr("positions {positions}", positions=row.positions), tr("{count:,} in", count=row.count)]
        if row.tokens:
            parts.append(f"{row.out_text} {row.out_note}".strip())
        if row.drafts:
            kept, own, rejected = row.verified
            parts += [tr("drafted and kept “{text}”", text=kept)] if kept else []
            parts += [tr("the model's own “{text}”", text=own)] if own else []
            parts += [tr("drafted and rejected “{text}”", text=rejected)] if rejected else []
        if row.reused:
            parts.append(tr("{count:,} cached before, {found:,} of them found", count=row.cached, found=row.reused))
        elif row.cached:
            parts.append(tr("{count:,} cached before", count=row.cached))
        if row.first > row.cached:
            parts.append(tr("{count:,} forgotten", count=row.first - row.cached))
        if row.padding:
            parts.append(tr("{count:,} padding", count=row.padding))
        if row.wasted:
            parts.append(tr("{count:,} wasted: {why}", count=row.wasted, why=WASTE_ABOUT[row.waste]))
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
        keys, up = Qt.Key, self._at - 1 if self._at >= 0 else count - 1
        moves = {keys.Key_Up: up, keys.Key_Down: self._at + 1, keys.Key_Home: 0, keys.Key_End: count - 1}
        moves |= {keys.Key_PageUp: self._at - page, keys.Key_PageDown: self._at + page}
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
