"""The table of a quality report: a row a quantization, the original first, sorted by whichever column is asked for."""

from __future__ import annotations

import math

from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QPersistentModelIndex,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QGuiApplication, QKeyEvent, QKeySequence, QPainter, QPen
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
)

from app.plot.scheme_mark import draw_scheme
from app.quality.words import (
    COLUMNS,
    Column,
    QualityTable,
    best_of,
    change_words,
    facts_words,
    precision,
    rows_of,
    value_of,
    way_words,
)
from app.ui import theme
from app.ui.font_face import FontFace
from app.words import sentence
from engine.config import SCHEMES
from engine.quality import QualityReport, QualityRow

LINE = 26
NAME, PRECISION = 0, 1
FIGURES = 2  # columns before the figures
DIVERGENCE = FIGURES + next(i for i, c in enumerate(COLUMNS) if c.key == "divergence")
NAMES = ("quantization", "precision")
Index = QModelIndex | QPersistentModelIndex
DOWN, UP = Qt.SortOrder.AscendingOrder, Qt.SortOrder.DescendingOrder


class QualityModel(QAbstractTableModel):
    """`order` holds places in `rows_of` the report, as they are shown. Rows without figures come last."""

    def __init__(self) -> None:
        super().__init__()
        self.report: QualityReport | None = None
        self.order: list[int] = []
        self._best: list[frozenset[int]] = []
        self.sorted_by, self.direction = DIVERGENCE, DOWN

    def show(self, report: QualityReport | None) -> None:
        self.beginResetModel()
        self.report = report
        self._best = [best_of(column, report) for column in COLUMNS] if report is not None else []
        self._sort()
        self.endResetModel()

    def sort(self, column: int, order: Qt.SortOrder = DOWN) -> None:
        self.layoutAboutToBeChanged.emit()
        self.sorted_by, self.direction = column, order
        self._sort()
        self.layoutChanged.emit()

    def _sort(self) -> None:
        if self.report is None:
            self.order = []
            return
        rows, by = rows_of(self.report), self.sorted_by
        names: dict[int, str] = {i: self.name(row) if by == NAME else precision(row) for i, row in enumerate(rows)}
        values = {i: value_of(COLUMNS[by - FIGURES], row) if by >= FIGURES else None for i, row in enumerate(rows)}
        if by < FIGURES:
            self.order = sorted(names, key=lambda i: names[i].lower(), reverse=self.direction is UP)
        else:
            sign = -1 if self.direction is UP else 1
            known = [i for i in values if values[i] is not None]
            self.order = sorted(known, key=lambda i: (sign * (values[i] or 0.0), i))
            self.order += [i for i in values if values[i] is None]

    def name(self, row: QualityRow) -> str:
        return "original" if self.report is not None and row is self.report.original else way_words(row)

    def row(self, index: Index) -> QualityRow:
        assert self.report is not None
        return rows_of(self.report)[self.order[index.row()]]

    def column(self, index: Index) -> Column | None:
        return COLUMNS[index.column() - FIGURES] if index.column() >= FIGURES else None

    def best(self, index: Index) -> bool:
        return index.column() >= FIGURES and self.order[index.row()] in self._best[index.column() - FIGURES]

    def change(self, index: Index) -> str:
        """How much the perplexity differs, in its own column."""
        column = self.column(index)
        row = self.row(index)
        if self.report is None or column is None or column.key != "perplexity" or row.error:
            return ""
        return change_words(row, self.report.original)

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self.order)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else FIGURES + len(COLUMNS)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        row, column = self.row(index), self.column(index)
        match role:
            case Qt.ItemDataRole.DisplayRole:
                if column is None:
                    return self.name(row) if index.column() == NAME else precision(row)
                value = value_of(column, row)
                return column.text(value) if value is not None else "–"
            case Qt.ItemDataRole.ToolTipRole:
                if row.error:
                    return sentence(row.error)
                if column is None and row.quantization in SCHEMES:
                    return sentence(SCHEMES[row.quantization].sentence) + "."
                return f"{column.name} = {column.formula}" if column is not None else None
            case Qt.ItemDataRole.AccessibleTextRole:
                words = f"{index.data()} {self.change(index)}".strip()
                if index.column() == NAME and self.report is not None:
                    return facts_words(row, self.report)
                return f"{words}, best" if self.best(index) else words
            case Qt.ItemDataRole.TextAlignmentRole:
                return self._side(index.column())
        return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if orientation is not Qt.Orientation.Horizontal:
            return None
        column = COLUMNS[section - FIGURES] if section >= FIGURES else None
        match role:
            case Qt.ItemDataRole.DisplayRole:
                arrow = ("  ↑" if self.direction is DOWN else "  ↓") if section == self.sorted_by else ""
                return f"{column.name if column is not None else NAMES[section]}{arrow}"
            case Qt.ItemDataRole.ToolTipRole:
                return f"{column.name} = {column.formula}" if column is not None else None
            case Qt.ItemDataRole.TextAlignmentRole:
                return self._side(section)
        return None

    def _side(self, column: int) -> Qt.AlignmentFlag:
        left = column < FIGURES
        return (Qt.AlignmentFlag.AlignLeft if left else Qt.AlignmentFlag.AlignRight) | Qt.AlignmentFlag.AlignVCenter


class _Cell(QStyledItemDelegate):
    """The mark before a name, a figure at the right with its change before it, the best ones strong; why there are no
    figures over the whole rest of the row."""

    def __init__(self, model: QualityModel) -> None:
        super().__init__()
        self._model = model
        self.restyle()

    def restyle(self) -> None:
        self.text, self.strong, self.small = map(FontFace, (theme.ui(13), theme.ui(13, 650), theme.ui(11)))

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        width = self.strong.width(str(index.data())) + theme.px(14)
        if index.column() == NAME:
            width += theme.px(20)
        change = self._model.change(index)
        if change:
            width += self.small.width(change) + theme.px(8)
        return QSize(math.ceil(width), theme.px(LINE))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        t, px = theme.current(), theme.px
        box, row = QRectF(option.rect), self._model.row(index)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(box, t.hover)
        if option.state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(QPen(t.accent, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), px(3), px(3))
        face = self.strong if self._model.best(index) else self.text
        baseline = box.center().y() + face.metrics.capHeight() / 2
        words, x = str(index.data()), box.left() + px(6)
        painter.setFont(face.font)
        if index.column() == NAME:
            original = self._model.report is not None and row is self._model.report.original
            name = "none" if original else row.quantization
            draw_scheme(painter, name, x + px(5), box.center().y(), px(8))
            painter.setPen(t.text)
            face.draw(painter, x + px(18), baseline, face.cut(words, box.width() - px(24)))
        elif row.error and (index.column() != PRECISION or not precision(row)):
            if index.column() == (FIGURES if precision(row) else PRECISION):
                self._say_error(painter, option, index, row)
        elif index.column() == PRECISION:
            painter.setPen(t.secondary)
            face.draw(painter, x, baseline, face.cut(words, box.width() - px(10)))
        else:
            painter.setPen(t.text if words != "–" else t.faint)
            x = box.right() - px(6) - face.width(words)
            face.draw(painter, x, baseline, words)
            change = self._model.change(index)
            x -= self.small.width(change) + px(8)
            if change and x >= box.left():
                painter.setFont(self.small.font)
                painter.setPen(t.secondary)
                self.small.draw(painter, x, baseline, change)
        painter.restore()

    def _say_error(self, painter: QPainter, option: QStyleOptionViewItem, index: Index, row: QualityRow) -> None:
        """In all the room that the figures would take."""
        view = option.widget
        box, px = QRectF(option.rect), theme.px
        if isinstance(view, QTableView):
            last = view.visualRect(self._model.index(index.row(), self._model.columnCount() - 1))
            box.setRight(last.right())
        painter.setPen(theme.current().bad)
        words = self.text.cut(f"✕ {sentence(row.error)}", box.width() - px(12))
        self.text.draw(painter, box.left() + px(6), box.center().y() + self.text.metrics.capHeight() / 2, words)


class QualityTableView(QTableView):
    """A click on a heading sorts by it, and so does Space for the column of the current cell."""

    chosen = Signal(int)  # place in `rows_of` the report

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("quality_table")
        self.setAccessibleName("Quality of each quantization")
        self.setAccessibleDescription("Arrows move, Space sorts by the column, Ctrl+C copies the table")
        self.facts = QualityModel()
        self.setModel(self.facts)
        self._delegate = _Cell(self.facts)
        self.setItemDelegate(self._delegate)
        self.setShowGrid(False)
        self.setFrameShape(QTableView.Shape.NoFrame)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionsClickable(True)
        header.setMinimumSectionSize(40)
        header.sectionClicked.connect(self.sort_by)
        self.selectionModel().currentRowChanged.connect(self._on_current)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()

    def show_report(self, report: QualityReport | None) -> None:
        self.facts.show(report)
        self.fit()

    def select(self, place: int) -> None:
        """Shows this row as the chosen one; -1: none."""
        if place in self.facts.order:
            column = max(0, self.currentIndex().column())
            self.setCurrentIndex(self.facts.index(self.facts.order.index(place), column))
        else:
            self.clearSelection()

    def sort_by(self, column: int) -> None:
        """By this column, the best first; the other way round when it is so already."""
        chosen = self.facts.order[self.currentIndex().row()] if self.currentIndex().isValid() else -1
        facts = self.facts
        first = UP if column >= FIGURES and COLUMNS[column - FIGURES].better > 0 else DOWN
        other = DOWN if facts.direction is UP else UP
        facts.sort(column, other if facts.sorted_by == column else first)
        facts.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, facts.columnCount() - 1)
        self.fit()
        if chosen >= 0:
            self.setCurrentIndex(facts.index(facts.order.index(chosen), column))

    def fit(self) -> None:
        """Columns as wide as what is in them, the rest shared out evenly; as high as all rows."""
        header, count = self.horizontalHeader(), self.facts.columnCount()
        widths = [max(self.sizeHintForColumn(i), header.sectionSizeHint(i)) for i in range(count)]
        spare = max(0, self.viewport().width() - sum(widths)) // count
        for i, width in enumerate(widths):
            self.setColumnWidth(i, width + spare)
        bar = self.horizontalScrollBar().sizeHint().height() if sum(widths) > self.viewport().width() else 0
        high = header.sizeHint().height() + self.facts.rowCount() * theme.px(LINE) + bar + theme.px(4)
        if high != self.height() or high != self.minimumHeight():
            self.setFixedHeight(high)

    def resizeEvent(self, event: object) -> None:
        super().resizeEvent(event)  # type: ignore[arg-type]
        self.fit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy) and self.facts.report is not None:
            QGuiApplication.clipboard().setText(QualityTable(self.facts.report).csv())
        elif event.key() == Qt.Key.Key_Space and self.currentIndex().isValid():
            self.sort_by(self.currentIndex().column())
        else:
            super().keyPressEvent(event)

    def _on_current(self, current: QModelIndex) -> None:
        if current.isValid():
            self.chosen.emit(self.facts.order[current.row()])

    def _on_theme(self) -> None:
        self._delegate.restyle()
        self.verticalHeader().setDefaultSectionSize(theme.px(LINE))
        self.fit()
