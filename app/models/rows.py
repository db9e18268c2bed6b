"""The list of models as Qt's views want it, and how a row is painted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.models.items import Item, Mark, Section, matches
from app.ui import theme
from app.ui.font_face import FontFace

ROW, HEAD = 46, 30  # heights in pixels of the design
Index = QModelIndex | QPersistentModelIndex


class ModelRows(QAbstractListModel):
    """Sections with their rows; a section's head is a row that cannot be chosen. `loaded` tells of a row whether its
    model is the loaded one."""

    def __init__(self, loaded: Callable[[Item], bool]) -> None:
        super().__init__()
        self.loaded = loaded
        self.words = ""
        self._sections: dict[Section, list[Item]] = {section: [] for section in Section}
        self.rows: list[Section | Item] = []

    def set_section(self, section: Section, items: Sequence[Item]) -> None:
        """Other rows in a section; where the same models are in it, only their words change."""
        old = self._sections[section]
        self._sections[section] = list(items)
        if [item.key for item in old] == [item.key for item in items] and not self.words:
            fresh = {item.key: item for item in items}
            for row, each in enumerate(self.rows):
                if isinstance(each, Item) and each.section is section and fresh[each.key] != each:
                    self.rows[row] = fresh[each.key]
                    self.dataChanged.emit(self.index(row), self.index(row))
            return
        self._fill()

    def set_words(self, words: str) -> None:
        """Shows only what has these words; the hub has found its results itself."""
        if words.strip() != self.words:
            self.words = words.strip()
            self._fill()

    def refresh(self) -> None:
        """Other marks: another model is the loaded one."""
        if self.rows:
            self.dataChanged.emit(self.index(0), self.index(len(self.rows) - 1))

    def _fill(self) -> None:
        rows: list[Section | Item] = []
        for section, items in self._sections.items():
            shown = [i for i in items if section is Section.HUB or matches(i, self.words)]
            rows += [section, *shown] if shown else []
        self.beginResetModel()
        self.rows = rows
        self.endResetModel()

    def items(self, section: Section) -> list[Item]:
        return self._sections[section]

    def item(self, index: Index) -> Item | None:
        if not index.isValid() or index.row() >= len(self.rows):
            return None
        row = self.rows[index.row()]
        return row if isinstance(row, Item) else None

    def find(self, key: tuple[str, str, str | None]) -> QModelIndex:
        """Where a row is; invalid when it is not on show."""
        for row, each in enumerate(self.rows):
            if isinstance(each, Item) and each.key == key:
                return self.index(row)
        return QModelIndex()

    def first(self) -> QModelIndex:
        """The first row that can be chosen."""
        return next((self.index(r) for r, each in enumerate(self.rows) if isinstance(each, Item)), QModelIndex())

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self.rows)

    def flags(self, index: Index) -> Qt.ItemFlag:
        if self.item(index) is None:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid():
            return None
        row = self.rows[index.row()]
        if isinstance(row, Section):
            return row.value if role == Qt.ItemDataRole.DisplayRole else None
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return row.name
            case Qt.ItemDataRole.AccessibleTextRole:
                return row.words(self.loaded(row))
            case Qt.ItemDataRole.ToolTipRole:
                return "\n".join(p for p in (str(row.folder or row.source), row.problem or row.unsupported) if p)
        return None


class RowPainter(QStyledItemDelegate):
    """Two lines: name, and what is known; a mark at the right. A download has a line of progress at its foot."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.restyle()

    def restyle(self) -> None:
        """Takes up the theme's fonts at the current zoom."""
        self.name, self.small, self.head = map(FontFace, (theme.ui(13, 500), theme.ui(11.5), theme.ui(11, 600)))

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        model = index.model()
        assert isinstance(model, ModelRows)
        if model.item(index) is not None:
            return QSize(100, theme.px(ROW))
        return QSize(100, theme.px(HEAD if index.row() else HEAD - 6))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        model = index.model()
        if not isinstance(model, ModelRows) or index.row() >= len(model.rows):
            return
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        row, box = model.rows[index.row()], QRectF(option.rect)
        if isinstance(row, Section):
            self._paint_head(painter, box, row)
        else:
            state = option.state
            self._paint_row(
                painter, box, row, row.mark(model.loaded(row)), bool(state & QStyle.StateFlag.State_Selected),
                bool(state & QStyle.StateFlag.State_MouseOver), bool(state & QStyle.StateFlag.State_HasFocus),
            )  # fmt: skip
        painter.restore()

    def _paint_head(self, painter: QPainter, box: QRectF, section: Section) -> None:
        px = theme.px
        painter.setFont(self.head.font)
        painter.setPen(theme.current().secondary)
        self.head.draw(painter, box.left() + px(10), box.bottom() - px(8), section.value.upper())

    def _paint_row(
        self, painter: QPainter, box: QRectF, item: Item, mark: Mark, selected: bool, pointed: bool, focused: bool
    ) -> None:  # fmt: skip
        t, px = theme.current(), theme.px
        ground = box.adjusted(0, px(1), 0, -px(1))
        if selected or pointed:
            shape = QPainterPath()
            shape.addRoundedRect(ground, px(6), px(6))
            painter.fillPath(shape, t.hover if selected else theme.over(t.hairline, t.panel))
        if selected and focused:
            painter.setPen(QPen(t.accent, 1))
            painter.drawRoundedRect(ground.adjusted(0.5, 0.5, -0.5, -0.5), px(6), px(6))
        inner = ground.adjusted(px(10), 0, -px(10), 0)
        gap = px(3)
        top = inner.center().y() - (self.name.height + gap + self.small.height) / 2
        first = top + self.name.ascent
        second = top + self.name.height + gap + self.small.ascent
        room = inner.width() - self._paint_mark(painter, inner.right(), first, mark)
        quiet = mark in (Mark.PROBLEM, Mark.PARTIAL, Mark.UNSUPPORTED)
        painter.setFont(self.name.font)
        painter.setPen(t.secondary if quiet else t.text)
        self.name.draw(painter, inner.left(), first, self.name.cut(item.name, room, Qt.TextElideMode.ElideMiddle))
        painter.setFont(self.small.font)
        painter.setPen(t.secondary)
        self.small.draw(painter, inner.left(), second, self.small.cut(item.detail, inner.width()))
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
        colors: dict[Mark, QColor] = {Mark.LOADED: t.good, Mark.HERE: t.secondary, Mark.UNSUPPORTED: t.warn,
                                      Mark.PARTIAL: t.warn, Mark.PROBLEM: t.bad}  # fmt: skip
        width = self.small.width(mark.value)
        painter.setFont(self.small.font)
        painter.setPen(colors[mark])
        self.small.draw(painter, right - width, baseline, mark.value)
        if mark is Mark.LOADED:
            radius = px(3)
            center = QPointF(right - width - px(6) - radius, baseline - self.small.metrics.capHeight() / 2)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(t.good)
            painter.drawEllipse(center, radius, radius)
            width += px(6) + 2 * radius
        return width + px(10)
