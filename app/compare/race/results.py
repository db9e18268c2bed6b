"""The result of a race: a row a measure, a column a lane, each beside its ratio to the first."""

from __future__ import annotations

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, QRectF, QSize, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHeaderView,
    QPushButton,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QVBoxLayout,
)

from app.compare.race.agreement_light import AgreementLight
from app.compare.race.session import Report
from app.plot.colors import lane_color
from app.ui import theme
from app.ui.font_face import FontFace
from app.ui.labels import Heading, label
from engine.compare import Comparison, MeasureRow

FEW = (
    "output_throughput", "goodput", "ttft.p95", "itl.p99", "e2e.p50", "longest_stall", "wasted_row_share",
    "padding_share", "kv.waste", "reused_tokens",
)  # fmt: skip
LINE = 22
LONGEST_NAME = 132  # pixels of the design that a lane's name may take; more is elided
Index = QModelIndex | QPersistentModelIndex


class ResultModel(QAbstractTableModel):
    """Column 0 names the measure. With `few`, only what people look at first."""

    def __init__(self) -> None:
        super().__init__()
        self.comparison: Comparison | None = None
        self.few = True
        self.rows: list[MeasureRow] = []

    def show(self, comparison: Comparison | None, few: bool) -> None:
        self.beginResetModel()
        self.comparison, self.few = comparison, few
        rows = comparison.rows if comparison is not None else ()
        if few:
            found = {row.measure.key: row for row in rows}
            rows = tuple(found[key] for key in FEW if key in found and _tells(found[key]))
        self.rows = list(rows)
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() or self.comparison is None else 1 + len(self.comparison.names)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        row = self.rows[index.row()]
        lane = index.column() - 1
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return row.measure.name if lane < 0 else row.measure.text(row.cells[lane].value)
            case Qt.ItemDataRole.ToolTipRole:
                return f"{row.measure.name} = {row.measure.formula}" if lane < 0 else self._repeats(row, lane)
            case Qt.ItemDataRole.TextAlignmentRole:
                side = Qt.AlignmentFlag.AlignLeft if lane < 0 else Qt.AlignmentFlag.AlignRight
                return side | Qt.AlignmentFlag.AlignVCenter
        return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if orientation is not Qt.Orientation.Horizontal or self.comparison is None:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole and section:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        if role == Qt.ItemDataRole.DisplayRole:
            return self.comparison.names[section - 1] if section else ""
        if role == Qt.ItemDataRole.ForegroundRole and section:
            return lane_color(section - 1)
        if role == Qt.ItemDataRole.ToolTipRole and section:
            return self.comparison.errors[section - 1] or self.comparison.names[section - 1]
        return None

    def _repeats(self, row: MeasureRow, lane: int) -> str:
        cell = row.cells[lane]
        if len(cell.values) < 2:
            return f"{row.measure.name} = {row.measure.formula}"
        return "the median of " + ", ".join(row.measure.text(v) for v in cell.values)


def _tells(row: MeasureRow) -> bool:
    """Whether a measure says anything: not where all lanes have nothing of it."""
    return any(cell.value for cell in row.cells)


class _Cell(QStyledItemDelegate):
    """A value at the right, its ratio and spread in a quieter colour before it; the best lane's is strong."""

    def __init__(self, model: ResultModel) -> None:
        super().__init__()
        self._model = model
        self.restyle()

    def restyle(self) -> None:
        self.text, self.strong, self.small = map(FontFace, (theme.ui(13), theme.ui(13, 650), theme.ui(11)))

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(round(self._width(index)) + theme.px(14), theme.px(LINE))

    def _width(self, index: Index) -> float:
        if index.column() == 0:
            return self.text.width(str(index.data()))
        quiet = self._quiet(index)
        return self.strong.width(str(index.data())) + (self.small.width(quiet) + theme.px(8) if quiet else 0)

    def _quiet(self, index: Index) -> str:
        cell = self._model.rows[index.row()].cells[index.column() - 1]
        words = []
        if cell.spread is not None:
            words.append(f"±{100 * cell.spread:.0f} %")
        if index.column() > 1 and cell.ratio:
            words.append(f"{cell.ratio:.2f} ×" if cell.ratio < 9.95 else f"{cell.ratio:.0f} ×")
        return "  ".join(words)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        t, px = theme.current(), theme.px
        box = QRectF(option.rect)
        row = self._model.rows[index.row()]
        face, color = self.text, t.secondary
        if index.column():
            color = t.text
            if row.best == index.column() - 1:
                face = self.strong
        baseline = box.center().y() + face.metrics.capHeight() / 2
        words = str(index.data())
        painter.setFont(face.font)
        painter.setPen(color)
        if index.column() == 0:
            face.draw(painter, box.left() + px(4), baseline, face.cut(words, box.width() - px(8)))
            return
        x = box.right() - px(6) - face.width(words)
        face.draw(painter, x, baseline, words)
        quiet = self._quiet(index)
        x -= self.small.width(quiet) + px(8)
        if quiet and x >= box.left():
            painter.setFont(self.small.font)
            painter.setPen(t.faint)
            self.small.draw(painter, x, baseline, quiet)


class ResultTable(QFrame):
    """A panel: the table, and below it whether all lanes gave the same tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("result_panel")
        self.setProperty("role", "panel")
        self._report: Report | None = None
        self.model = ResultModel()
        self.table = QTableView()
        self.table.setObjectName("result_table")
        self.table.setAccessibleName("Result")
        self.table.setModel(self.model)
        self._delegate = _Cell(self.model)
        self.table.setItemDelegate(self._delegate)
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.table.setShowGrid(False)
        self.table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.table.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header = self.table.horizontalHeader()
        header.setSectionsClickable(False)
        header.setMinimumSectionSize(40)
        header.setTextElideMode(Qt.TextElideMode.ElideMiddle)  # lanes may differ in their last word
        self.empty = label("The table comes when every lane is done.", "secondary", "result_empty")
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.all = QPushButton("all measures")
        self.all.setObjectName("result_all")
        self.all.setProperty("role", "quiet")
        self.all.setCheckable(True)
        self.all.toggled.connect(self._show)
        self.light = AgreementLight()
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 10, 12, 8)
        column.setSpacing(4)
        column.addWidget(Heading("Result", self.all))
        column.addWidget(self.table, 1)
        column.addWidget(self.empty, 1)
        column.addWidget(self.light)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()
        self._show()

    @property
    def comparison(self) -> Comparison | None:
        return self._report.comparison if self._report is not None else None

    def set_report(self, report: Report | None) -> None:
        self._report = report
        self._show()

    def _show(self) -> None:
        report = self._report
        self.model.show(self.comparison, not self.all.isChecked())
        self.table.setVisible(report is not None)
        self.empty.setVisible(report is None)
        self.all.setVisible(report is not None)
        names = report.comparison.names if report is not None else ()
        if report is None:
            self.light.set_agreements((), ())
        else:
            self.light.set_agreements(names, report.agreements, report.other_weights)
        self._stretch()

    def _stretch(self) -> None:
        """Columns as wide as what is in them, the first takes what is left; the panel as wide as all of them."""
        header, columns = self.table.horizontalHeader(), self.model.columnCount()
        for i in range(columns):
            header.setSectionResizeMode(i, QHeaderView.ResizeMode.Fixed)
        name = theme.px(LONGEST_NAME)
        widths = [max(self.table.sizeHintForColumn(i), min(header.sectionSizeHint(i), name)) for i in range(columns)]
        for i, width in enumerate(widths):
            self.table.setColumnWidth(i, width)
        bar = self.table.verticalScrollBar().sizeHint().width()
        wanted = sum(widths) + bar + 2 * theme.px(12) + 2
        self.setFixedWidth(min(max(wanted, theme.px(320)), theme.px(600)))
        spare = self.width() - wanted
        if columns and spare > 0:
            self.table.setColumnWidth(0, widths[0] + spare)

    def _on_theme(self) -> None:
        self._delegate.restyle()
        self.table.verticalHeader().setDefaultSectionSize(theme.px(LINE))
        self._stretch()
