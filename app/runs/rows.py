"""The list of runs in rows that can be sorted and searched, and how they are painted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QLineEdit, QStyleOptionViewItem, QWidget

from app.language import tr
from app.runs.entry import Entry, detail_words, factor_words, factors, matches, when_words
from app.runs.thumbnail import Thumbnails
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.tables.columns import UP, Column, Index, Role, SortedModel
from app.ui.tables.view import GAP, PAD, Cells
from app.words import bytes_words, duration, number
from engine.library import LaneFacts

LINE = 58  # pixels of the design
SLOTS_TIP = tr("Slots from top to bottom, time to the right")
RUN_TIP = tr("Its title, which is its file's name")
RATE_TIP = tr("Output throughput = Σ n / D; below it: ÷ the baseline's")
TTFT_TIP = tr("95th percentile; below it: ÷ the baseline's")
RACE_WORDS = tr("Of a race: its fastest lane's.")


def _figure(
    title: str, width: int, value: Callable[[LaneFacts], float | None], words: Callable[[float], str], tip: str
) -> Column[Entry]:
    def sorts(entry: Entry) -> float | None:
        return value(entry.best) if entry.best is not None else None

    def said(entry: Entry) -> str:
        figure = sorts(entry)
        return words(figure) if figure is not None else ""

    return Column(title, said, sorts, f"{RACE_WORDS} {tip}", right=True, width=width)


def _when(entry: Entry) -> str:
    return " ".join(when_words(entry.created, time.time()))


def _size(entry: Entry) -> str:
    return bytes_words(entry.size)


TIMELINE, RUN, WHEN, REQUESTS, TOKENS, RUN_TIME, THROUGHPUT, TTFT, SIZE = range(9)
COLUMNS: tuple[Column[Entry], ...] = (
    Column(tr("Timeline"), lambda e: "", lambda e: e.created, SLOTS_TIP, width=188),
    Column(tr("Run"), lambda e: e.title, lambda e: e.title.casefold(), RUN_TIP, width=280),
    Column(tr("When"), _when, lambda e: e.created, tr("When it was begun"), width=88),
    _figure(tr("Requests"), 76, lambda r: r.requests, "{:,.0f}".format, tr("Requests that came in")),
    _figure(tr("Tokens"), 76, lambda r: r.output_tokens, "{:,.0f}".format, tr("Output tokens")),
    _figure(tr("Run time"), 80, lambda r: r.duration, duration, tr("Last token − first submit")),
    _figure(tr("tok/s"), 76, lambda r: r.throughput, number, RATE_TIP),
    _figure(tr("TTFT p95"), 84, lambda r: r.ttft_p95, duration, TTFT_TIP),
    Column(tr("Size"), _size, lambda e: e.size, tr("Of the file"), right=True, width=72),
)
FACTOR_COLUMNS = {THROUGHPUT, TTFT}


class RunRows(SortedModel[Entry]):
    """The entries that have the words that are searched for, the newest first."""

    title_given = Signal(object, str)  # Path, and what a person calls it now

    def __init__(self) -> None:
        super().__init__(COLUMNS, WHEN)
        self.direction = UP
        self.words = ""
        self.baseline: Entry | None = None
        self._entries: list[Entry] = []

    def show(self, entries: Iterable[Entry], baseline: Entry | None) -> None:
        """Others than before."""
        self._entries, self.baseline = list(entries), baseline
        self.reset()

    def update(self, entry: Entry, baseline: Entry | None) -> None:
        """One of them is another now; its place stays until the next sort."""
        self.baseline = baseline
        for key, each in enumerate(self._entries):
            if each.path == entry.path:
                self._entries[key] = entry
        self.tell()

    def search(self, words: str) -> None:
        self.words = words
        self.reset()

    def keys(self) -> list[int]:
        return [key for key, entry in enumerate(self._entries) if matches(entry, self.words)]

    def row_of(self, key: int) -> Entry | None:
        return self._entries[key] if key < len(self._entries) else None

    def place_of(self, path: Path) -> int | None:
        """Of its row; None where it is not on show."""
        return next((i for i, key in enumerate(self.order) if self._entries[key].path == path), None)

    def tip(self, row: Entry, column: int) -> str:
        if column == RUN:
            tags = (tr("tags: {tags}", tags=", ".join(row.tags)),) if row.tags else ()
            return "\n".join((row.title, detail_words(row), *tags))
        told = factors(row, self.baseline)
        return told.words if told is not None and column in FACTOR_COLUMNS else ""

    def said(self, row: Entry, column: int) -> str:
        if column == TIMELINE:
            return tr("timeline of {run}", run=row.title)
        if column == RUN:
            marks = (*((tr("baseline"),) if row.pinned else ()), *(tr("tag {tag}", tag=tag) for tag in row.tags))
            return ", ".join((row.title, detail_words(row), *marks))
        return f"{COLUMNS[column].title} {COLUMNS[column].words(row)} {self.factor(row, column)}".strip()

    def factor(self, row: Entry, column: int) -> str:
        """Against the baseline, of the two measures that have one."""
        told = factors(row, self.baseline)
        if told is None or column not in FACTOR_COLUMNS:
            return ""
        ratio = told.throughput if column == THROUGHPUT else told.ttft
        return factor_words(ratio, told.differs)

    def flags(self, index: Index) -> Qt.ItemFlag:
        editable = Qt.ItemFlag.ItemIsEditable if index.column() == RUN else Qt.ItemFlag.NoItemFlags
        return super().flags(index) | editable

    def data(self, index: Index, role: int = Role.DisplayRole) -> object:
        return super().data(index, Role.DisplayRole if role == Role.EditRole else role)

    def setData(self, index: Index, value: object, role: int = Role.EditRole) -> bool:
        row = self.row(index.row())
        if row is None or role != Role.EditRole or str(value).strip() in ("", row.title):
            return False
        self.title_given.emit(row.path, str(value))
        return True


class RunCells(Cells[Entry]):
    """Two lines: a value with what is quieter below it; the timeline; tags in rounded boxes."""

    strong, text, small, tiny = Face(13, 600), Face(13), Face(11.5), Face(11, 500)

    def __init__(self, model: RunRows) -> None:
        super().__init__(model)
        self._rows = model
        self._pictures = Thumbnails()

    def draw(self, painter: QPainter, box: QRectF, row: Entry, column: int) -> None:
        t = theme.current()
        painter.fillRect(QRectF(box.left(), box.bottom() - 1, box.width(), 1), t.hairline)
        inner = box.adjusted(theme.px(PAD), 0, -theme.px(PAD), 0)
        if column == TIMELINE:
            self._draw_strip(painter, inner.adjusted(0, theme.px(7), 0, -theme.px(7)), row)
        elif column == RUN:
            self._draw_run(painter, inner, row)
        elif column == WHEN:
            self._draw_lines(painter, inner, *when_words(row.created, time.time()), t.text)
        else:
            below, words = self._rows.factor(row, column), COLUMNS[column].words(row)
            color = t.text if column in FACTOR_COLUMNS else t.secondary
            self._draw_lines(painter, inner, words, below, color, right=True)

    def _lines(self, box: QRectF, below: str) -> tuple[float, float]:
        """The baselines of both lines; of the first alone where nothing is below it."""
        if not below:
            return self.baseline(box, self.text), 0.0
        gap = theme.px(4)
        top = box.center().y() - (self.text.height + gap + self.small.height) / 2
        return top + self.text.ascent, top + self.text.height + gap + self.small.ascent

    def _draw_lines(
        self, painter: QPainter, box: QRectF, words: str, below: str, color: QColor, *, right: bool = False
    ) -> None:
        first, second = self._lines(box, below)
        for face, said, baseline, ink in (
            (self.text, words, first, color),
            (self.small, below, second, theme.current().secondary),
        ):
            shown = face.cut(said, box.width())
            x = box.right() - face.width(shown) if right else box.left()
            face.say(painter, x, baseline, shown, ink)

    def _draw_strip(self, painter: QPainter, box: QRectF, row: Entry) -> None:
        t = theme.current()
        picture = self._pictures.of(row.facts.strip) if row.facts is not None else None
        if picture is None:
            painter.setPen(QPen(t.edge, 1, Qt.PenStyle.DashLine))
            painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), theme.px(3), theme.px(3))
            return
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, False)
        painter.drawImage(box, picture)

    def _draw_run(self, painter: QPainter, box: QRectF, row: Entry) -> None:
        t = theme.current()
        first, second = self._lines(box, "x")
        chips = [(tr("baseline"), t.accent)] * row.pinned + [(tag, t.secondary) for tag in row.tags]
        room = box.width() - self._draw_chips(painter, box, first, chips)
        title = self.strong.cut(row.title, room, Qt.TextElideMode.ElideMiddle)
        self.strong.say(painter, box.left(), first, title, t.text)
        wrong = t.bad if row.problem else t.secondary
        self.small.say(painter, box.left(), second, self.small.cut(detail_words(row), box.width()), wrong)

    def _draw_chips(self, painter: QPainter, box: QRectF, baseline: float, chips: list[tuple[str, QColor]]) -> float:
        """At the right, as many as leave half of the width to the title; returns the room they take."""
        pad, gap, high = theme.px(6), theme.px(4), self.tiny.height + theme.px(2)
        shown: list[tuple[str, QColor]] = []
        taken = 0.0
        for words, color in chips:
            wide = self.tiny.width(words) + 2 * pad + gap
            if taken + wide > box.width() / 2:
                break
            shown.append((words, color))
            taken += wide
        x = box.right() - taken + gap
        for words, color in shown:
            wide = self.tiny.width(words) + 2 * pad
            place = QRectF(x, baseline - self.tiny.cap / 2 - high / 2, wide, high)
            painter.setPen(QPen(color, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(place.adjusted(0.5, 0.5, -0.5, -0.5), theme.px(4), theme.px(4))
            self.tiny.say(painter, x + pad, place.center().y() + self.tiny.cap / 2, words, color)
            x += wide + gap
        return taken + theme.px(GAP) if shown else 0.0

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        """A field for the title."""
        field = QLineEdit(parent)
        field.setObjectName("run_title")
        field.setAccessibleName(tr("Title of the run"))
        return field

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: Index) -> None:
        high = max(editor.sizeHint().height(), option.rect.height() - theme.px(12))  # over both lines
        editor.setGeometry(option.rect.x(), option.rect.center().y() - high // 2, option.rect.width(), high)
