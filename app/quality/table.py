"""The table of a quality report: a row a quantization, the original first, sorted by whichever column is asked for."""

import math

from PySide6.QtCore import QModelIndex, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QResizeEvent

from app.language import tr
from app.plot.marks import draw_scheme
from app.quality import words
from app.quality.words import (
    QualityTable,
    best_of,
    cache_words,
    change_words,
    facts_words,
    precision,
    rows_of,
    scheme_words,
    value_of,
    way_words,
)
from app.ui.look import theme
from app.ui.tables.columns import ACROSS, DOWN, UP, Column, Role, SortedModel
from app.ui.tables.view import PAD, Cells, TableView
from app.words import sentence
from engine.config import SCHEMES
from engine.quality import QualityReport, QualityRow

LINE = 26
NAME, PRECISION = 0, 1
FIGURES = 2  # columns before the figures
PERPLEXITY, DIVERGENCE = (FIGURES + list(words.COLUMN).index(key) for key in ("perplexity", "divergence"))
NOTHING = "–"


def _figure(column: words.Column) -> Column[QualityRow]:
    def said(row: QualityRow) -> str:
        value = value_of(column, row)
        return column.text(value) if value is not None else NOTHING

    tip = f"{column.name} = {column.formula}"
    return Column(column.name, said, lambda row: value_of(column, row), tip, right=True)


class QualityModel(SortedModel[QualityRow]):
    """`order` holds places in `rows_of` the report."""

    def __init__(self) -> None:
        super().__init__((), DIVERGENCE)
        name: Column[QualityRow] = Column(tr("quantization"), self.name, lambda row: self.name(row).lower())
        dtype: Column[QualityRow] = Column(tr("precision"), precision, lambda row: precision(row).lower())
        self.columns = (name, dtype, *map(_figure, words.COLUMNS))
        self.report: QualityReport | None = None
        self._best: list[list[QualityRow]] = []

    def show(self, report: QualityReport | None) -> None:
        self.report = report
        self.rows = rows_of(report) if report is not None else ()
        self._best = [[self.rows[i] for i in best_of(column, report)] for column in words.COLUMNS] if report else []
        self.reset()

    def keys(self) -> range:
        return range(len(self.rows))

    def row_of(self, key: int) -> QualityRow:
        return self.rows[key]

    def name(self, row: QualityRow) -> str:
        return tr("original") if self.original(row) else way_words(row)

    def original(self, row: QualityRow) -> bool:
        return self.report is not None and row is self.report.original

    def best(self, row: QualityRow, column: int) -> bool:
        return column >= FIGURES and row in self._best[column - FIGURES]

    def change(self, row: QualityRow, column: int) -> str:
        """How much the perplexity differs, in its own column."""
        if self.report is None or row.error or column != PERPLEXITY:
            return ""
        return change_words(row, self.report.original)

    def tip(self, row: QualityRow, column: int) -> str:
        if row.error:
            return sentence(row.error)
        if column < FIGURES and row.cache:
            return sentence(cache_words(row.cache)) + "."
        if column < FIGURES and row.quantization in SCHEMES:
            return sentence(scheme_words(row.quantization)) + "."
        return self.columns[column].tip

    def said(self, row: QualityRow, column: int) -> str:
        if column == NAME and self.report is not None:
            return facts_words(row, self.report)
        said = f"{self.columns[column].words(row)} {self.change(row, column)}".strip()
        return tr("{value}, best", value=said) if self.best(row, column) else said

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Role.DisplayRole) -> object:
        shown = super().headerData(section, orientation, role)
        sorts = role == Role.DisplayRole and orientation is ACROSS and section == self.by
        return f"{shown}  {'↑' if self.direction is DOWN else '↓'}" if sorts else shown


class QualityCells(Cells[QualityRow]):
    """The mark before a name, a figure at the right with its change before it, the best ones strong; why there are no
    figures over the whole rest of the row."""

    focus_ring = 3

    def __init__(self, facts: QualityModel, view: TableView) -> None:
        super().__init__(facts)
        self._facts, self._view = facts, view

    def wide(self, row: QualityRow, column: int) -> int:
        wide = self.room(self.model.columns[column].words(row), self._facts.change(row, column))
        return math.ceil(wide + theme.px(14) + (theme.px(20) if column == NAME else 0))

    def draw(self, painter: QPainter, box: QRectF, row: QualityRow, column: int) -> None:
        t, px, said = theme.current(), theme.px, self.model.columns[column].words(row)
        untold = FIGURES if precision(row) else PRECISION  # where what failed has nothing more to say
        if column == NAME:
            scheme = "none" if self._facts.original(row) else row.quantization
            draw_scheme(painter, scheme, box.left() + px(PAD) + px(5), box.center().y(), px(8))
            self.say_left(painter, box.adjusted(px(18), 0, 0, 0), said, self.text, t.text)
        elif row.error and column >= untold:
            if column == untold:
                others = range(column + 1, self.model.columnCount())
                box.setWidth(box.width() + sum(map(self._view.columnWidth, others)))
                self.say_left(painter, box, f"✕ {sentence(row.error)}", self.text, t.bad)
        elif column == PRECISION:
            self.say_left(painter, box, said, self.text, t.secondary)
        else:
            face = self.strong if self._facts.best(row, column) else self.text
            change = self._facts.change(row, column), t.secondary
            self.say_right(painter, box, said, face, t.faint if said == NOTHING else t.text, change)


class QualityTableView(TableView):
    """A click on a heading sorts by it, and so does Space for the column of the current cell."""

    chosen = Signal(int)  # place in `rows_of` the report

    def __init__(self) -> None:
        facts = QualityModel()
        super().__init__("quality_table", tr("Quality of each quantization"), facts, None, LINE)
        self.facts = facts
        self.setAccessibleDescription(tr("Arrows move, Space sorts by the column, Ctrl+C copies the table"))
        self.setItemDelegate(QualityCells(facts, self))
        self.setFrameShape(TableView.Shape.NoFrame)
        self.setSelectionMode(TableView.SelectionMode.SingleSelection)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTabKeyNavigation(False)
        header = self.horizontalHeader()
        header.setSectionsClickable(True)
        header.setMinimumSectionSize(40)
        header.sectionClicked.connect(self.sort_by)
        self.selectionModel().currentRowChanged.connect(self._on_current)
        theme.changes.theme_changed.connect(self.fit)
        self.fit()

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
        facts = self.facts
        down = column < FIGURES or words.COLUMNS[column - FIGURES].better <= 0
        if facts.by == column:
            down = facts.direction is UP
        facts.sort(column, DOWN if down else UP)
        facts.headerDataChanged.emit(ACROSS, 0, facts.columnCount() - 1)
        self.fit()
        if self.currentIndex().isValid():
            self.setCurrentIndex(facts.index(self.currentIndex().row(), column))

    def fit(self) -> None:
        """Columns as wide as what is in them, the rest shared out evenly; as high as all rows."""
        header, count = self.horizontalHeader(), self.facts.columnCount()
        widths = [max(self.sizeHintForColumn(i), header.sectionSizeHint(i)) for i in range(count)]
        spare = max(0, self.viewport().width() - sum(widths)) // count
        for i, width in enumerate(widths):
            self.setColumnWidth(i, width + spare)
        bar = self.horizontalScrollBar().sizeHint().height() if sum(widths) > self.viewport().width() else 0
        high = header.sizeHint().height() + self.facts.rowCount() * theme.px(LINE) + bar + theme.px(4)
        self.setFixedHeight(high)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit()

    def copied(self) -> str | None:
        return QualityTable(self.facts.report).csv() if self.facts.report is not None else None

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Space and self.currentIndex().isValid():
            self.sort_by(self.currentIndex().column())
        else:
            super().keyPressEvent(event)

    def _on_current(self, current: QModelIndex) -> None:
        if current.isValid():
            self.chosen.emit(self.facts.order[current.row()])
