"""Conversations as Qt's views want them, and how one is painted."""

from __future__ import annotations

from datetime import datetime

from PySide6.QtCore import QLocale, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.chat.store.conversations import Conversation
from app.language import spoken, tr
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.tables.columns import Column, ColumnModel, Index
from app.ui.tables.ground import paint_row_ground

ROW, PAD = 46, 10  # pixels of the design


def when_words(then: float, now: datetime | None = None) -> str:
    """ "14:02" today, "Mon 9:30" within a week, else "3 Nov", with its year where it is another."""
    time, now = datetime.fromtimestamp(then), now or datetime.now()
    days = (now.date() - time.date()).days
    if days <= 0:
        return f"{time:%H:%M}"
    names, short = QLocale(spoken()), QLocale.FormatType.ShortFormat
    if days < 7:
        return f"{names.standaloneDayName(time.isoweekday(), short)} {time:%H:%M}"
    month = names.standaloneMonthName(time.month, short)
    if time.year == now.year:
        return tr("{day} {month}", day=time.day, month=month)
    return tr("{day} {month} {year}", day=time.day, month=month, year=time.year)


class ChatRows(ColumnModel[Conversation]):
    renamed = Signal(object, str)  # Conversation, its new title

    def __init__(self) -> None:
        super().__init__([Column("", lambda row: row.title)])

    def flags(self, index: Index) -> Qt.ItemFlag:
        return super().flags(index) | Qt.ItemFlag.ItemIsEditable

    def said(self, row: Conversation, column: int) -> str:
        parts = row.title, tr("pinned") if row.pinned else "", when_words(row.changed), row.excerpt
        return ", ".join(part for part in parts if part)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        return super().data(index, Qt.ItemDataRole.DisplayRole if role == Qt.ItemDataRole.EditRole else role)

    def setData(self, index: Index, value: object, role: int = Qt.ItemDataRole.EditRole) -> bool:
        row, title = self.row(index.row()), " ".join(str(value).split())
        if row is None or not title or title == row.title:
            return False
        self.renamed.emit(row, title)
        return True


class ChatRowPainter(QStyledItemDelegate):
    """Two lines: its title, and when something was last said, or what was found in it."""

    name, small = Face(13, 500), Face(11.5)

    def __init__(self, rows: ChatRows) -> None:
        super().__init__(rows)
        self._rows = rows

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(100, theme.px(ROW))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row = self._rows.row(index.row())
        if row is None:
            return
        t, px = theme.current(), theme.px
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        ground = QRectF(option.rect).adjusted(0, px(1), 0, -px(1))
        paint_row_ground(painter, ground, option.state)
        inner = ground.adjusted(px(PAD), 0, -px(PAD), 0)
        gap = px(3)
        top = inner.center().y() - (self.name.height + gap + self.small.height) / 2
        second = top + self.name.height + gap + self.small.ascent
        self.name.say(painter, inner.left(), top + self.name.ascent, self.name.cut(row.title, inner.width()), t.text)
        when = " · ".join(part for part in (tr("pinned") if row.pinned else "", when_words(row.changed)) if part)
        room = inner.width() - self.small.width(when) - px(8)
        self.small.say(painter, inner.left(), second, when, t.secondary)
        if row.excerpt:
            left = inner.left() + self.small.width(when) + px(8)
            words = self.small.cut(" ".join(row.excerpt.split()), room)
            self.small.say(painter, left, second, words, t.secondary)
        painter.restore()

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: Index) -> None:
        high = min(option.rect.height(), editor.sizeHint().height())
        middle = option.rect.center().y() - high // 2
        editor.setGeometry(QRect(option.rect.left(), middle, option.rect.width(), high))
