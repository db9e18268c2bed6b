"""The log: the newest lines of the window and its engine, filtered, copied, saved."""

import logging
from collections.abc import Callable
from pathlib import Path
from time import localtime, strftime

from PySide6.QtCore import QRectF, Qt, QTimer
from PySide6.QtGui import QCloseEvent, QColor, QGuiApplication, QPainter
from PySide6.QtWidgets import QFileDialog, QHeaderView, QPlainTextEdit, QSplitter, QWidget

from app.language import tr
from app.reports.log import Log, LogLine, level_word
from app.ui.controls import DropDown, button, line_edit
from app.ui.labels import Note, label
from app.ui.layout.boxes import fill, held, named, row
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.sheets.dialog import Dialog
from app.ui.tables.columns import Column, ColumnModel
from app.ui.tables.view import Cells, TableView

LOOK_MS = 250  # between looks for new lines
LEVELS: list[tuple[str, object]] = [
    (tr("everything"), logging.DEBUG),
    (tr("warnings and errors"), logging.WARNING),
    (tr("errors"), logging.ERROR),
]
LEVEL_TITLES = {"info": tr("info"), "warning": tr("warning"), "error": tr("error")}
COLUMNS: list[Column[LogLine]] = [
    Column(tr("Time"), lambda line: strftime("%H:%M:%S", localtime(line.time)), width=72),
    Column(tr("Level"), lambda line: LEVEL_TITLES.get(level_word(line.level), level_word(line.level)), width=72),
    Column(tr("From"), lambda line: f"{line.process} · {line.source}", width=190),
    Column(tr("What"), lambda line: line.text),
]
WHAT = len(COLUMNS) - 1


class _Cells(Cells[LogLine]):
    text = Face(12.5)

    def draw(self, painter: QPainter, box: QRectF, row: LogLine, column: int) -> None:
        words = COLUMNS[column].words(row)
        if column == WHAT and row.details:
            words += "  …"
        self.say_left(painter, box, words, self.text, _color(row.level, column))


def _color(level: int, column: int) -> QColor:
    tokens = theme.current()
    if column == 1 and level >= logging.WARNING:
        return tokens.bad if level >= logging.ERROR else tokens.warn
    return tokens.text if column == WHAT else tokens.secondary


class _Table(TableView):
    """`copied`: the lines that are selected, whole."""

    def __init__(self, model: ColumnModel[LogLine]) -> None:
        super().__init__("log_lines", tr("Lines of the log"), model, _Cells(model), 24)
        self._rows = model
        header = self.horizontalHeader()
        header.setStretchLastSection(True)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        self.setTabKeyNavigation(False)
        theme.changes.theme_changed.connect(self._size_columns)
        self._size_columns()

    def _size_columns(self) -> None:
        for place, column in enumerate(COLUMNS[:-1]):
            self.setColumnWidth(place, theme.px(column.width))

    def copied(self) -> str | None:
        return "\n".join(str(self._rows.rows[place]) for place in self.picked())


class LogWindow(Dialog):
    """Follows the log while its end is in sight. `folder` has the files of it, None where none are written."""

    def __init__(self, parent: QWidget, log: Log, folder: Path | None, show: Callable[[Path], object]) -> None:
        super().__init__(parent, "log_window", tr("Log"))
        self.setModal(False)
        self._log, self._folder = log, folder
        self._seen = 0
        self._lines: list[LogLine] = []
        self.level = DropDown("log_level", LEVELS, tr("Which lines are shown"))
        self.level.setMinimumContentsLength(16)
        self.search = line_edit("log_search", tr("Search in the log"), tr("Search"))
        self.search.setClearButtonEnabled(True)
        self.model: ColumnModel[LogLine] = ColumnModel(COLUMNS)
        self.table = _Table(self.model)
        self.details = named(QPlainTextEdit(), "log_details", said=tr("The chosen lines, whole"))
        self.details.setReadOnly(True)
        self.details.setTabChangesFocus(True)
        self.details.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.empty = Note("log_empty")
        self.count = label("", "note", "log_count")
        kept = Note("log_folder")
        if folder is not None:
            kept.say(tr("Kept in {folder}. It holds neither prompts nor answers, and is sent nowhere.", folder=folder))
        else:
            kept.say(tr("No file is kept of it. It holds neither prompts nor answers, and is sent nowhere."))
        self.copy = button("log_copy", tr("Copy"), self._on_copy, tip=tr("The chosen lines, or all that are shown"))
        self.save = button("log_save", tr("Save …"), self._on_save)
        self.open_folder = button("log_open_folder", tr("Show the folder"), lambda: folder and show(folder))
        self.open_folder.setVisible(folder is not None)
        close = button("log_close", tr("Close"), self.close)
        for each in (self.copy, self.save, self.open_folder, close):
            each.setAutoDefault(False)
        split = QSplitter(Qt.Orientation.Vertical)
        split.addWidget(self.table)
        split.addWidget(self.details)
        split.setStretchFactor(0, 3)
        split.setStretchFactor(1, 1)
        split.setSizes([360, 120])
        split.setChildrenCollapsible(False)
        buttons = row(kept_place := held(row((kept, 1))), self.copy, self.save, self.open_folder, close, spacing=8)
        buttons.setStretch(buttons.indexOf(kept_place), 1)
        self.column.setSpacing(8)
        fill(self.column, row(self.level, (self.search, 1), self.count, spacing=8), margins=None)
        fill(self.column, self.empty, (split, 1), buttons, margins=None)
        self.level.activated.connect(self._show_all)
        self.search.textChanged.connect(self._show_all)
        self.table.selectionModel().selectionChanged.connect(self._on_selected)
        self._looking = QTimer(self, interval=LOOK_MS)
        self._looking.timeout.connect(self._on_look)
        self._looking.start()
        self._show_font()
        theme.changes.theme_changed.connect(self._show_font)
        self.resize(parent.size().boundedTo(self.maximumSize()) * 0.75)
        self._on_look()
        self._show_all()

    def lines(self) -> list[LogLine]:
        """Those that are shown."""
        return list(self.model.rows)

    def _shown(self, line: LogLine) -> bool:
        words = self.search.text().lower().split()
        hay = f"{line.process} {line.source} {line.text} {line.details}".lower()
        return line.level >= int(self.level.currentData()) and all(word in hay for word in words)

    def _on_look(self) -> None:
        new = self._log.since(self._seen)
        if not new:
            return
        self._seen = new[-1].number + 1
        self._lines = self._log.since(0)
        if any(map(self._shown, new)):
            self._show_all()

    def _show_all(self) -> None:
        bar = self.table.verticalScrollBar()
        follows, picked = bar.value() >= bar.maximum(), {self.model.rows[at].number for at in self.table.picked()}
        shown = [line for line in self._lines if self._shown(line)]
        self.model.show_rows(shown)
        for place, line in enumerate(shown):
            if line.number in picked:
                self.table.selectRow(place)
        self.count.setText(tr("{shown:,} of {all:,} lines", shown=len(shown), all=len(self._lines)))
        self.empty.say(
            "" if shown else tr("No line of the log is so.") if self._lines else tr("Nothing has been logged yet.")
        )
        if follows:
            self.table.scrollToBottom()

    def _on_selected(self) -> None:
        picked = [self.model.rows[place] for place in self.table.picked()]
        self.details.setPlainText("\n".join(map(str, picked)))

    def text(self) -> str:
        """The chosen lines, or all that are shown."""
        chosen = [self.model.rows[place] for place in self.table.picked()]
        return "\n".join(map(str, chosen or self.model.rows))

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self.text())

    def _on_save(self) -> None:
        dialog = QFileDialog(self, tr("Save the log"), "batchscope-log.txt")
        dialog.setObjectName("log_save_dialog")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("txt")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.write)
        dialog.open()

    def write(self, path: str) -> None:
        """Saves what is shown; a failure is told in the window."""
        try:
            Path(path).write_text(self.text() + "\n", encoding="utf-8")
        except OSError as error:
            self.empty.say(
                tr("{path} was not written: {why}. Choose another folder.", path=path, why=error.strerror), "error"
            )
        else:
            self.empty.say(tr("Saved to {path}.", path=path), "note")

    def _show_font(self) -> None:
        self.details.setFont(theme.mono(12))

    def closeEvent(self, event: QCloseEvent) -> None:
        self._looking.stop()
        super().closeEvent(event)
