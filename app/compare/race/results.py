"""The result of a race: a row a measure, a column a lane, each beside its ratio to the first."""

from collections.abc import Collection, Sequence
from math import floor, log10

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QFrame, QHeaderView

from app.compare.lane_names import short_names
from app.compare.race.agreement_light import AgreementLight
from app.compare.race.report import Report
from app.compare.words import measure_title
from app.language import digits, tr
from app.plot.marks import lane_color
from app.ui.controls import button
from app.ui.labels import Heading, Note, label
from app.ui.layout.boxes import column, named
from app.ui.look import theme
from app.ui.tables.columns import ACROSS, Column, ColumnModel, Role
from app.ui.tables.view import Cells, TableView
from engine.compare import Comparison, MeasureRow

FEW = """
    output_throughput goodput cost ttft.p95 ttfo.p95 itl.p99 gaps_within e2e.p50 longest_stall wasted_row_share
    padding_share kv.waste reused_tokens
""".split()
OF_PRIORITY = "ttft.p50."
LINE = 22
LONGEST_NAME = 168  # pixels of the design that a lane's name may take; more is elided
LEAST, BESIDE = 320, 760  # pixels of the design: the narrowest it is, and the widest where charts stand beside it


class ResultModel(ColumnModel[MeasureRow]):
    """Column 0 names the measure. With `few`, only what people look at first."""

    def show(self, comparison: Comparison | None, names: Sequence[str], few: bool) -> None:
        if comparison is None:
            self.show_rows((), ())
            return
        name: Column[MeasureRow] = Column("", lambda row: measure_title(row.measure))
        said = (error or words for error, words in zip(comparison.errors, comparison.disturbances, strict=True))
        tips = ("\n".join(filter(None, (name, words))) for words, name in zip(said, comparison.names, strict=True))
        rows = comparison.rows
        if few:
            found = {row.measure.key: row for row in rows if any(cell.value for cell in row.cells)}
            rows = tuple(found[key] for key in _first(found))
        self.show_rows(rows, [name, *(_lane_column(i, *each) for i, each in enumerate(zip(names, tips, strict=True)))])

    def tip(self, row: MeasureRow, column: int) -> str:
        values = row.cells[column - 1].values if column else ()
        if len(values) < 2:
            return f"{measure_title(row.measure)} = {row.measure.formula}"
        return tr("the median of {values}", values=", ".join(map(row.measure.text, values)))

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Role.DisplayRole) -> object:
        if role == Role.ForegroundRole and orientation is ACROSS and section:
            return lane_color(section - 1)
        return super().headerData(section, orientation, role)


def _first(keys: Collection[str]) -> list[str]:
    """Those that people look at first: of requests of several priorities what those of each waited too."""
    waits = [key for key in keys if key.startswith(OF_PRIORITY)]
    return [each for key in FEW if key in keys for each in ([key, *waits] if key == "ttft.p95" else [key])]


def _lane_column(lane: int, name: str, tip: str) -> Column[MeasureRow]:
    return Column(name, lambda row: digits(row.measure.text(row.cells[lane].value)), tip=tip, right=True)


def _quiet(row: MeasureRow, lane: int) -> str:
    """The spread of a lane's repeats, and its ratio to the first lane."""
    cell, words = row.cells[lane], []
    if cell.spread is not None:
        words.append(f"±{100 * cell.spread:.0f} %")
    if lane > 0 and cell.ratio:
        digits_behind = 0 if cell.ratio >= 9.95 else max(2, 1 - floor(log10(cell.ratio)))
        words.append(f"{cell.ratio:.{digits_behind}f} ×")
    return "  ".join(words)


class ResultCells(Cells[MeasureRow]):
    """A value at the right, its ratio and spread in a quieter colour before it; the best lane's is strong."""

    indent = 4

    def wide(self, row: MeasureRow, column: int) -> int:
        words = self.model.columns[column].words(row)
        wide = self.room(words, _quiet(row, column - 1)) if column else self.text.width(words)
        return round(wide) + theme.px(14)

    def draw(self, painter: QPainter, box: QRectF, row: MeasureRow, column: int) -> None:
        t, words = theme.current(), self.model.columns[column].words(row)
        if column == 0:
            self.say_left(painter, box, words, self.text, t.secondary)
            return
        lane = column - 1
        face = self.strong if row.best == lane else self.text
        self.say_right(painter, box, words, face, t.text, (_quiet(row, lane), t.faint))


class ResultTable(QFrame):
    """A panel: the table, and below it whether all lanes gave the same tokens."""

    widened = Signal()

    def __init__(self) -> None:
        super().__init__()
        named(self, "result_panel", "panel")
        self._report: Report | None = None
        self._most, self.wanted = theme.px(BESIDE), 0  # pixels that it may take, and would to show every column whole
        self.model = ResultModel()
        self.table = TableView("result_table", tr("Result"), self.model, ResultCells(self.model), LINE)
        self.table.setSelectionMode(TableView.SelectionMode.NoSelection)
        header = self.table.horizontalHeader()
        header.setSectionsClickable(False)
        header.setMinimumSectionSize(40)
        header.setTextElideMode(Qt.TextElideMode.ElideMiddle)  # lanes may differ in their last word
        self.empty = label(tr("The table comes when every lane is done."), "secondary", "result_empty")
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.all = button("result_all", tr("all measures"), role="quiet", checkable=True)
        self.all.toggled.connect(self._show)
        self.light = AgreementLight()
        self.disturbed = Note("result_disturbed", "warning")
        parts = Heading(tr("Result"), self.all), (self.table, 1), (self.empty, 1), self.disturbed, self.light
        self.setLayout(column(*parts, margins=(12, 10, 12, 8), spacing=4))
        theme.changes.theme_changed.connect(self._stretch)
        self._show()

    def hasHeightForWidth(self) -> bool:
        """No: with its note the whole sheet would take the height that each lane prefers."""
        return False

    @property
    def comparison(self) -> Comparison | None:
        return self._report.comparison if self._report is not None else None

    def give(self, most: int) -> None:
        """It may be so many pixels wide."""
        if most != self._most:
            self._most = most
            self._stretch()

    def set_report(self, report: Report | None) -> None:
        self._report = report
        self._show()

    def _show(self) -> None:
        report = self._report
        few, names = not self.all.isChecked(), self.comparison.names if self.comparison is not None else ()
        self.model.show(self.comparison, names, few)
        header, most = self.table.horizontalHeader(), theme.px(LONGEST_NAME)
        if any(header.sectionSizeHint(lane) > most for lane in range(1, len(names) + 1)):
            self.model.show(self.comparison, short_names(names), few)  # the whole is in the tip
        self.empty.setVisible(report is None)
        disturbed = ", ".join(report.comparison.disturbed) if report is not None else ""
        self.disturbed.say(tr("Other programs disturbed {lanes}.", lanes=disturbed) if disturbed else "")
        for widget in (self.table, self.all):
            widget.setVisible(report is not None)
        if report is None:
            self.light.set_agreements((), ())
        else:
            self.light.set_agreements(report.comparison.names, report.agreements, report.other_weights)
        self._stretch()

    def _stretch(self) -> None:
        """Columns as wide as what is in them, the first takes what is left; the panel as wide as all of them."""
        header, columns = self.table.horizontalHeader(), self.model.columnCount()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        name = theme.px(LONGEST_NAME)
        widths = [max(self.table.sizeHintForColumn(i), min(header.sectionSizeHint(i), name)) for i in range(columns)]
        for i, width in enumerate(widths):
            self.table.setColumnWidth(i, width)
        bar = self.table.verticalScrollBar().sizeHint().width()
        wanted = self.wanted = sum(widths) + bar + 2 * theme.px(12) + 2
        fixed = min(max(wanted, theme.px(LEAST)), max(self._most, theme.px(LEAST)))
        if fixed != self.width():
            self.setFixedWidth(fixed)
            self.widened.emit()
        spare = self.width() - wanted
        if columns and spare > 0:
            self.table.setColumnWidth(0, widths[0] + spare)
