"""The list of models as Qt's views want it, and how a row is painted."""

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem

from app.models.items import MARKS, TITLES, Item, Mark, RowKey, Section, matches
from app.session.session import Session, SessionState
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.tables.columns import Column, ColumnModel, Index
from app.ui.tables.ground import paint_row_ground

ROW, HEAD = 46, 30  # heights in pixels of the design


class ModelRows(ColumnModel[Section | Item]):
    """Sections with their rows; a section's head is a row that cannot be chosen."""

    def __init__(self, session: Session) -> None:
        super().__init__([Column("", lambda row: TITLES[row] if isinstance(row, Section) else row.name)])
        self._session = session
        self.words = ""
        self._sections: dict[Section, list[Item]] = {section: [] for section in Section}

    def loaded(self, item: Item) -> bool:
        """Whether its model is the loaded one: a recent one only as it was loaded then."""
        spec, state = self._session.spec, self._session.state
        same = item.settings == spec if item.section is Section.RECENT else item.model == (spec.source, spec.revision)
        return same and state in (SessionState.READY, SessionState.LEASED)

    def set_section(self, section: Section, items: Sequence[Item]) -> None:
        """Other rows in a section; where the same models are in it, only their words change."""
        old = [item.key for item in self._sections[section]]
        self._sections[section] = list(items)
        if [item.key for item in items] != old or self.words:
            self._fill()
            return
        fresh = {item.key: item for item in items}
        before = self.rows
        self.rows = [fresh.get(row.key, row) if isinstance(row, Item) else row for row in before]
        if self.rows != before:
            self.tell()

    def set_words(self, words: str) -> None:
        """Shows only what has these words; the hub has found its results itself."""
        if words.strip() != self.words:
            self.words = words.strip()
            self._fill()

    def _fill(self) -> None:
        rows: list[Section | Item] = []
        for section, items in self._sections.items():
            shown = [i for i in items if section is Section.HUB or matches(i, self.words)]
            rows += [section, *shown] if shown else []
        self.show_rows(rows)

    def items(self, section: Section) -> list[Item]:
        return self._sections[section]

    def item(self, index: Index) -> Item | None:
        row = self.row(index.row())
        return row if isinstance(row, Item) else None

    def find(self, key: RowKey | None = None) -> QModelIndex:
        """Where a row is, or the first that can be chosen; invalid when it is not on show."""
        for place, row in enumerate(self.rows):
            if isinstance(row, Item) and key in (None, row.key):
                return self.index(place, 0)
        return QModelIndex()

    def flags(self, index: Index) -> Qt.ItemFlag:
        if self.item(index) is None:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable

    def said(self, row: Section | Item, column: int) -> str:
        return row.words(self.loaded(row)) if isinstance(row, Item) else ""

    def tip(self, row: Section | Item, column: int) -> str:
        if isinstance(row, Section):
            return ""
        return "\n".join(p for p in (str(row.folder or row.source), row.problem or row.unsupported) if p)


class RowPainter(QStyledItemDelegate):
    """Two lines: name, and what is known; a mark at the right. A download has a line of progress at its foot."""

    name, small, head = Face(13, 500), Face(11.5), Face(11, 600)

    def __init__(self, rows: ModelRows) -> None:
        super().__init__(rows)
        self._rows = rows

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        head = HEAD if index.row() else HEAD - 6
        return QSize(100, theme.px(head if self._rows.item(index) is None else ROW))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row, box = self._rows.row(index.row()), QRectF(option.rect)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if isinstance(row, Section):
            left, baseline = box.left() + theme.px(10), box.bottom() - theme.px(8)
            self.head.say(painter, left, baseline, TITLES[row].upper(), theme.current().secondary)
        elif row is not None:
            ground = box.adjusted(0, theme.px(1), 0, -theme.px(1))
            paint_row_ground(painter, ground, option.state)
            self._paint_row(painter, ground, row)
        painter.restore()

    def _paint_row(self, painter: QPainter, ground: QRectF, item: Item) -> None:
        t, px, mark = theme.current(), theme.px, item.mark(self._rows.loaded(item))
        inner = ground.adjusted(px(10), 0, -px(10), 0)
        gap = px(3)
        top = inner.center().y() - (self.name.height + gap + self.small.height) / 2
        first = top + self.name.ascent
        second = top + self.name.height + gap + self.small.ascent
        room = inner.width() - self._paint_mark(painter, inner.right(), first, mark)
        quiet = mark in (Mark.PROBLEM, Mark.PARTIAL, Mark.UNSUPPORTED)
        name = self.name.cut(item.name, room, Qt.TextElideMode.ElideMiddle)
        self.name.say(painter, inner.left(), first, name, t.secondary if quiet else t.text)
        self.small.say(painter, inner.left(), second, self.small.cut(item.detail, inner.width()), t.secondary)
        if item.share is not None:
            track = QRectF(inner.left(), ground.bottom() - px(3), inner.width(), px(2))
            painter.fillRect(track, theme.over(t.edge, t.panel))
            running = item.download is not None and item.download.active
            track.setWidth(track.width() * item.share)
            painter.fillRect(track, t.accent if running else t.secondary)

    def _paint_mark(self, painter: QPainter, right: float, baseline: float, mark: Mark) -> float:
        """The mark's word, ending at `right`; returns the room it takes."""
        if mark is Mark.NONE:
            return 0.0
        t, px = theme.current(), theme.px
        colors = {Mark.LOADED: t.good, Mark.HERE: t.secondary, Mark.PROBLEM: t.bad}
        width, radius = self.small.width(MARKS[mark]), px(3)
        self.small.say(painter, right - width, baseline, MARKS[mark], colors.get(mark, t.warn))
        if mark is Mark.LOADED:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(t.good)
            painter.drawEllipse(QPointF(right - width - px(6) - radius, baseline - self.small.cap / 2), radius, radius)
            width += px(6) + 2 * radius
        return width + px(10)
