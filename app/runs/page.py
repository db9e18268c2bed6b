"""The Runs page: every run and race that was kept."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, QItemSelectionModel, QObject, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QKeySequence, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QMenu, QStackedWidget

from app.language import tr
from app.runs.changes import RunChanges
from app.runs.entry import Entry
from app.runs.foot import Foot
from app.runs.library import RunLibrary
from app.runs.rows import COLUMNS, LINE, REQUESTS, RUN, RUN_TIME, SIZE, TIMELINE, TOKENS, WHEN, RunCells, RunRows
from app.runs.tag_sheet import TagSheet
from app.session.session import Session
from app.ui.banner import Banner
from app.ui.controls import button, line_edit
from app.ui.labels import label
from app.ui.layout.boxes import column, held, row
from app.ui.layout.zoomed import zoomed
from app.ui.look import theme
from app.ui.page import Page
from app.ui.tables.columns import UP
from app.ui.tables.view import TableView
from app.ui.undo import UndoStack
from app.words import export_words, sentence
from engine.export import KINDS
from engine.library import MOST_SIDES

NARROWEST = 180  # pixels of the design that the titles have at least
# of the table, for a column to be shown
LEAST = {TIMELINE: 560, WHEN: 660, SIZE: 760, REQUESTS: 980, TOKENS: 1060, RUN_TIME: 1120}
NATIVE = QKeySequence.SequenceFormat.NativeText
TELL_MS = 200  # between two looks at what was read meanwhile
EMPTY = tr("Every run with a prompt, and every race, is kept here by itself.")
SEARCH = tr("Search   tag:talk  mode:static  is:race")
SEARCH_TIP = tr("Words of title, model, mode or tag; tag:, mode:, model: and is: look in one place")


class RunTable(TableView):
    """The titles take what room the other columns leave; where that is too little, the least of them go."""

    @property
    def editing(self) -> bool:
        return self.state() is TableView.State.EditingState

    def fit(self) -> None:
        wide = self.viewport().width()
        for place, told in enumerate(COLUMNS):
            self.setColumnHidden(place, wide < theme.px(LEAST.get(place, 0)))
            self.setColumnWidth(place, theme.px(told.width))
        others = sum(self.columnWidth(i) for i in range(len(COLUMNS)) if i != RUN)
        self.setColumnWidth(RUN, max(theme.px(NARROWEST), wide - others))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit()


class RunsPage(Page):
    """Builds the parts and joins their signals. What a person does with a run is in `changes`."""

    open_asked = Signal(object)  # Path
    compare_asked = Signal(object)  # list[Path]
    export_asked = Signal(str, object)  # kind of file, list[Path]
    play_asked = Signal()

    def __init__(self, session: Session, undo: UndoStack) -> None:
        super().__init__("runs_page")
        self.library = RunLibrary(session, self)
        self.notice = Banner()
        self.changes = RunChanges(self.library, undo, self.notice, self)
        self.rows = RunRows()
        self.rows.setParent(self)
        self.table = RunTable("runs_table", tr("Runs"), self.rows, RunCells(self.rows), LINE)
        self.table.setSortingEnabled(True)
        self.table.horizontalHeader().setSortIndicator(WHEN, UP)
        self.table.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.table.setTabKeyNavigation(False)
        self.search = line_edit("runs_search", tr("Search runs"), SEARCH)
        self.search.setToolTip(SEARCH_TIP)
        self.search.setClearButtonEnabled(True)
        self.foot = Foot(self.library)
        self._stale = QTimer(self, interval=TELL_MS, singleShot=True)
        self._make_actions()
        self._lay_out()
        self._connect()
        self._say_choice()

    def _make_actions(self) -> None:
        self.open_action = self.action(tr("Open the run"), self.open_current)
        self.compare_action = self.action(tr("Compare runs on one clock"), self._on_compare, "Ctrl+K")
        self.rename_action = self.action(tr("Rename the run …"), self._on_rename)
        self.tag_action = self.action(tr("Tag the run …"), self._on_tag, "Ctrl+T")
        self.pin_action = self.action(tr("Pin the run as baseline"), self._on_pin, "Ctrl+B")
        self.delete_action = self.action(tr("Delete the run"), self._on_delete)
        self.action(tr("Search the runs"), self.search.setFocus, "Ctrl+F")
        self.action(tr("Look again for runs"), self.library.refresh, "Ctrl+R")

    def _lay_out(self) -> None:
        self.exports = QMenu(tr("Export"), self)
        for what in KINDS:
            act = self.exports.addAction(f"{sentence(export_words(what))} …")
            act.triggered.connect(lambda checked=False, what=what: self.export_asked.emit(what, self._paths()))
        self.open_button = button("runs_open", tr("Open"), self.open_current, role="primary", tip=tr("Enter"))
        self.compare_button = button("runs_compare", tr("Compare on one clock"), self._on_compare)
        self.export_button = button("runs_export", tr("Export"))
        self.export_button.setMenu(self.exports)
        self.more_button = button("runs_more", tr("More"), said=tr("More to do with the run"))
        self.more_button.setMenu(self._menu())
        buttons = self.compare_button, self.export_button, self.more_button, self.open_button
        head = zoomed(row((self.search, 1), *buttons), spacing=8)
        hint = label(EMPTY, "title", "runs_empty")
        hint.setAlignment(Qt.AlignmentFlag.AlignCenter)
        hint.setWordWrap(True)
        self.play_button = button("runs_play", tr("Send a prompt"), self.play_asked, role="primary")
        self.nothing = label(tr("No run has these words."), "secondary", "runs_nothing")
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        middle = Qt.AlignmentFlag.AlignCenter
        self.body = QStackedWidget()
        for widget in (
            self.table,
            held(column(None, hint, (self.play_button, 0, middle), None, spacing=16)),
            self.nothing,
        ):
            self.body.addWidget(widget)
        sheet = QFrame()
        sheet.setProperty("role", "panel")
        sheet.setLayout(zoomed(column((self.body, 1), self.foot), (8, 4, 8, 6), 4))
        self.head = held(head)
        self.setLayout(zoomed(column(self.head, self.notice, (sheet, 1)), (8, 8, 8, 8), 8))

    def _menu(self) -> QMenu:
        menu = QMenu(self)
        for action, keys in (
            (self.rename_action, QKeySequence("F2")),
            (self.tag_action, self.tag_action.shortcut()),
            (self.pin_action, self.pin_action.shortcut()),
            (self.delete_action, QKeySequence("Del")),
        ):
            shown = menu.addAction(f"{action.text()}\t{keys.toString(NATIVE)}")
            shown.triggered.connect(action.trigger)
            action.changed.connect(lambda shown=shown, action=action: shown.setEnabled(action.isEnabled()))
        return menu

    def _connect(self) -> None:
        library = self.library
        library.changed.connect(self._on_changed)
        library.told.connect(self._on_told)
        library.failed.connect(lambda words: self.notice.tell("error", tr("The runs"), sentence(words)))
        self._stale.timeout.connect(self._on_stale)
        self.search.textChanged.connect(self._on_search)
        self.rows.title_given.connect(self._on_title)
        self.table.selectionModel().selectionChanged.connect(self._say_choice)
        self.rows.modelReset.connect(self._say_choice)
        self.table.doubleClicked.connect(self.open_current)
        self.table.customContextMenuRequested.connect(self._on_menu)
        for keyed in (self.table, self.search):
            keyed.installEventFilter(self)
        theme.changes.theme_changed.connect(self.table.fit)

    # -- what is chosen -------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """The page is shown: it looks what came meanwhile."""
        self.library.refresh()
        self.table.setFocus()

    def close_down(self) -> None:
        self._stale.stop()
        self.library.close()

    @property
    def chosen(self) -> list[Entry]:
        """The selected ones, from top to bottom."""
        return [entry for place in self.table.picked() if (entry := self.rows.row(place)) is not None]

    def choose(self, *paths: Path) -> None:
        """Selects these rows."""
        flags = QItemSelectionModel.SelectionFlag
        selection = self.table.selectionModel()
        selection.clear()
        for place in (place for path in paths if (place := self.rows.place_of(path)) is not None):
            index = self.rows.index(place, RUN)
            selection.select(index, flags.Select | flags.Rows)
            selection.setCurrentIndex(index, flags.NoUpdate)
            self.table.scrollTo(index)

    def open_current(self) -> None:
        if len(self.chosen) == 1 and not self.chosen[0].recording:
            self.open_asked.emit(self.chosen[0].path)

    def _paths(self) -> list[Path]:
        return [entry.path for entry in self.chosen]

    def _say_choice(self) -> None:
        """What can be done with what is selected."""
        chosen = self.chosen
        one, rest = len(chosen) == 1, [e for e in chosen if not e.recording]
        runs = [e for e in rest if not e.race]
        self.open_action.setEnabled(one and bool(rest))
        self.open_button.setEnabled(one and bool(rest))
        comparable = 2 <= len(runs) <= MOST_SIDES and len(runs) == len(chosen)
        self.compare_action.setEnabled(comparable)
        self.compare_button.setEnabled(comparable)
        why = tr("Select two to {most} runs; a race has its lanes already.", most=MOST_SIDES)
        keys = self.compare_action.shortcut().toString(NATIVE)
        self.compare_button.setToolTip(keys if comparable else f"{why} {keys}")
        self.export_button.setEnabled(bool(rest) and (one or len(runs) == len(chosen)))
        self.rename_action.setEnabled(one and bool(rest))
        self.tag_action.setEnabled(bool(chosen) and all(e.facts is not None for e in chosen))
        self.pin_action.setEnabled(one and chosen[0].facts is not None)
        self.delete_action.setEnabled(bool(rest) and len(rest) == len(chosen))

    # -- slots ----------------------------------------------------------------------------------------------------

    def _on_changed(self) -> None:
        self._stale.stop()
        kept = self._paths()
        self.rows.show(self.library.entries.values(), self.library.baseline)
        self.choose(*kept)
        self._show_body()

    def _on_told(self, path: Path) -> None:
        self.rows.update(self.library.entries[path], self.library.baseline)
        if not self._stale.isActive():
            self._stale.start()

    def _on_stale(self) -> None:
        """What was read may belong elsewhere now; not while a title is typed."""
        if self.table.editing:
            self._stale.start()
        else:
            self._on_search(self.search.text())

    def _on_search(self, words: str) -> None:
        kept = self._paths()
        self.rows.search(words)
        self.choose(*kept)
        self._show_body()

    def _show_body(self) -> None:
        place = 0 if self.rows.rowCount() else 1 if not self.library.entries else 2
        self.body.setCurrentIndex(place)

    def _on_title(self, path: Path, title: str) -> None:
        focused = self.window().focusWidget()
        typed = focused is not None and self.table.isAncestorOf(focused)
        new = self.changes.rename(path, title)
        self.choose(new)
        if typed:  # the field is gone with the old rows, and the next control in the window would have the focus
            self.table.setFocus()

    def _on_compare(self) -> None:
        if self.compare_action.isEnabled():
            self.compare_asked.emit(self._paths())

    def _on_rename(self) -> None:
        place = self.table.picked()
        if place:
            self.table.edit(self.rows.index(place[0], RUN))

    def _on_tag(self) -> None:
        chosen = self.chosen
        if chosen:
            known = sorted({tag for entry in self.library.entries.values() for tag in entry.tags})
            sheet = TagSheet(self, chosen[0].tags, known)
            sheet.taken.connect(lambda text: self.changes.tag(chosen, text))
            sheet.open_below(self.more_button)

    def _on_pin(self) -> None:
        if self.chosen:
            self.changes.pin(self.chosen[0])
            self._on_changed()

    def _on_delete(self) -> None:
        chosen = self.chosen
        if chosen and self.delete_action.isEnabled():
            place = self.table.picked()[0]
            self.changes.delete(chosen)
            self.table.setFocus()
            beside = self.rows.row(min(place, self.rows.rowCount() - 1))
            if beside is not None:
                self.choose(beside.path)

    def _on_menu(self, place: QPoint) -> None:
        if self.chosen:
            self.more_button.menu().popup(self.table.viewport().mapToGlobal(place))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Enter opens, Delete deletes; Down in the field goes to the list."""
        if not isinstance(event, QKeyEvent) or event.type() != QEvent.Type.KeyPress:
            return super().eventFilter(watched, event)
        match event.key():
            case Qt.Key.Key_Return | Qt.Key.Key_Enter if watched is self.table:
                self.open_current()
            case Qt.Key.Key_Delete | Qt.Key.Key_Backspace if watched is self.table:
                self._on_delete()
            case Qt.Key.Key_F2 if watched is self.table:
                self._on_rename()
            case Qt.Key.Key_Down if watched is self.search:
                self.table.setFocus()
            case _:
                return super().eventFilter(watched, event)
        return True

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.library.set_reads(True)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.library.set_reads(False)
