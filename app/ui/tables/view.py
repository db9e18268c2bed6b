"""The look and the keys that all tables have, and what paints their cells."""

from typing import Generic

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QGuiApplication, QKeyEvent, QKeySequence, QPainter, QPen
from PySide6.QtWidgets import QHeaderView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QTableView

from app.ui.look import theme
from app.ui.look.font_face import Face, FontFace
from app.ui.tables.columns import ColumnModel, Index, Row

Elide = Qt.TextElideMode
Said = tuple[str, QColor]  # words and their colour
PAD, GAP = 6, 8  # pixels of the design: at the ends of a cell, and between its words


class Cells(QStyledItemDelegate, Generic[Row]):
    """Paints the ground and the focus ring of a cell, its corners rounded by so many pixels of the design; a subclass
    says how to `draw` what is on it, and how `wide` that is."""

    text, strong, small = Face(13), Face(13, 650), Face(11)
    focus_ring: float | None = None
    indent = PAD

    def __init__(self, model: ColumnModel[Row]) -> None:
        super().__init__(model)
        self.model = model

    def draw(self, painter: QPainter, box: QRectF, row: Row, column: int) -> None:
        raise NotImplementedError

    def wide(self, row: Row, column: int) -> int | None:
        """In pixels; None is as wide as its words in the view's font."""
        return None

    def room(self, words: str, quiet: str = "") -> float:
        """What `say_right` takes where the words are strong, without the ends of the cell."""
        return self.strong.width(words) + (self.small.width(quiet) + theme.px(GAP) if quiet else 0)

    def baseline(self, box: QRectF, face: FontFace) -> float:
        return box.center().y() + face.cap / 2

    def say_left(
        self, painter: QPainter, box: QRectF, words: str, face: FontFace, color: QColor, mode: Elide = Elide.ElideRight
    ) -> None:
        """As many of the words as there is room for."""
        pad = theme.px(self.indent)
        shown = face.cut(words, box.width() - 2 * pad, mode)
        face.say(painter, box.left() + pad, self.baseline(box, face), shown, color)

    def say_right(
        self, painter: QPainter, box: QRectF, words: str, face: FontFace, color: QColor, quiet: Said | None = None
    ) -> None:
        """The words at the right; before them, where there is room, quiet ones in their colour."""
        baseline, x = self.baseline(box, face), box.right() - theme.px(PAD) - face.width(words)
        face.say(painter, x, baseline, words, color)
        before, quieter = quiet or ("", color)
        x -= self.small.width(before) + theme.px(GAP)
        if before and x >= box.left():
            self.small.say(painter, x, baseline, before, quieter)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row, box = self.model.row(index.row()), QRectF(option.rect)
        if row is None:
            return
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(box, theme.current().hover)
        if self.focus_ring is not None and option.state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(QPen(theme.current().accent, 1))
            round_by = theme.px(self.focus_ring)
            painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), round_by, round_by)
        self.draw(painter, box, row, index.column())
        painter.restore()

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        row = self.model.row(index.row())
        wide = None if row is None else self.wide(row, index.column())
        return super().sizeHint(option, index) if wide is None else QSize(wide, 0)


class TableView(QTableView):
    """Rows to be read, `line` pixels of the design high. A subclass may say what is `copied`."""

    def __init__(self, name: str, said: str, model: ColumnModel[Row], cells: Cells[Row] | None, line: float) -> None:
        super().__init__()
        self.setObjectName(name)
        self.setAccessibleName(said)
        self.setModel(model)
        if cells is not None:
            self.setItemDelegate(cells)
        self.line = line
        self.setShowGrid(False)
        self.setEditTriggers(QTableView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QTableView.SelectionBehavior.SelectRows)
        self.setHorizontalScrollMode(QTableView.ScrollMode.ScrollPerPixel)
        self.setVerticalScrollMode(QTableView.ScrollMode.ScrollPerPixel)
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.horizontalHeader().setHighlightSections(False)
        theme.changes.theme_changed.connect(self._size_lines)
        self._size_lines()

    def picked(self) -> list[int]:
        """The places of the rows that are selected, from top to bottom."""
        return sorted({index.row() for index in self.selectionModel().selectedRows()})

    def copied(self) -> str | None:
        """What Ctrl+C copies; None is the current cell."""
        return None

    def _size_lines(self) -> None:
        self.verticalHeader().setDefaultSectionSize(theme.px(self.line))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        text = self.copied() if event.matches(QKeySequence.StandardKey.Copy) else None
        if text is not None:
            QGuiApplication.clipboard().setText(text)
        else:
            super().keyPressEvent(event)
