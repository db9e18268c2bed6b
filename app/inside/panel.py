"""A panel that looks inside a trace: a picture at the scope's moment, or a table of the same facts, and its export."""

from abc import abstractmethod
from collections.abc import Sequence
from math import inf
from time import perf_counter
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAction, QGuiApplication, QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QHBoxLayout,
    QSizePolicy,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.inside.look import Look
from app.language import tr
from app.playback.scope import Scope
from app.ui.export import ExportMenu, picture_entries, text_entry
from app.ui.labels import label
from app.ui.line import Line
from app.ui.look import theme
from app.ui.look.backstage import Backstage
from app.ui.tables.fact_table import FactTable
from app.ui.tables.facts import Facts
from engine.trace import Record

CHUNK = 8  # records between looks at the clock
PAUSE = 0.1  # seconds between two drawings of what is new; a move of the cursor is drawn at once
FAR_BEHIND = 2000  # records from which on the panel says how far it is


def tool_button(name: str, text: str, tip: str, said: str = "") -> QToolButton:
    """A small button for a panel's head; `said` to those who cannot see it."""
    button = QToolButton()
    button.setObjectName(name)
    button.setText(text)
    button.setToolTip(tip)
    button.setAccessibleName(said)
    return button


COMING = tr("The first step is being computed.")  # in the place of a picture that has none yet


class InsightPanel(QWidget):
    """What every such panel has: a title, one line of facts, a menu, and the turn that its scope gives it.

    A subclass makes its picture and hands it to `set_picture`, and answers `take`, `adopt`, `forget`, `draw`
    and `facts`.
    """

    done = Signal(str)  # an export was made, in words
    failed = Signal(str)

    def __init__(self, scope: Scope, name: str, title: str) -> None:
        super().__init__()
        self.setObjectName(name)
        self.setAccessibleName(title)
        self.scope, self.title = scope, title
        self._position = 0  # records taken
        self._stale = self._moved = True
        self._drawn_at = 0.0
        self.posed = False
        self.shared: tuple[float, float] | None = None  # seconds that an axis of time shows, where others beside it do
        self.summary = Line(f"{name}_summary", Qt.AlignmentFlag.AlignRight)
        tip, said = tr("Show as a table, copy, or export"), tr("{panel}: table and export", panel=title)
        self.menu_button = tool_button(f"{name}_menu", "⋯", tip, said)
        self.menu_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.table_action = QAction(tr("Show as a table"), self, checkable=True)
        self.table_action.toggled.connect(self.show_table)
        copy_action = QAction(tr("Copy the table"), self)
        copy_action.triggered.connect(self._on_copy)
        entries = picture_entries(lambda: self.picture, title)
        entries.append(text_entry(tr("Table"), ".csv", lambda: self.facts().csv()))
        own, heading = (self.table_action, copy_action), tr("Export: {panel}", panel=title)
        self.menu = ExportMenu(self, entries, title=heading, what=title, stem=name, each=tr("Export as"), own=own)
        self.menu.done.connect(self.done)
        self.menu.failed.connect(self.failed)
        self.menu_button.setMenu(self.menu)
        self.table = FactTable(f"{name}_table", title)
        self.table.row_chosen.connect(self.row_chosen)
        self.head = QHBoxLayout()
        self.head.setSpacing(theme.px(8))
        self.heading = label(title.upper(), "heading")
        self.head.addWidget(self.heading)
        self.head.addWidget(self.summary, 1)
        self.head.addWidget(self.menu_button)
        Backstage(self, self.menu_button)
        self.stack = QStackedWidget()
        self.stack.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Ignored)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.px(6))
        column.addLayout(self.head)
        column.addWidget(self.stack, 1)
        self.picture: QWidget = QWidget()
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)  # else a dozen widgets behind it paint for each frame
        scope.attach(self)
        scope.trace_changed.connect(self._on_trace)
        scope.moved.connect(self.stale)
        scope.selected.connect(self.stale)
        theme.changes.theme_changed.connect(self.stale)

    def set_picture(self, picture: QWidget) -> None:
        """The drawn side; call it once."""
        self.picture = picture
        self.stack.addWidget(picture)
        self.stack.addWidget(self.table)

    # -- what a subclass says -------------------------------------------------------------------------------------

    @abstractmethod
    def take(self, records: Sequence[Record]) -> None:
        """The next records of the trace, each once and in order."""

    @abstractmethod
    def adopt(self, known: Any) -> bool:
        """What its reader made of all records of a run that has an index, in place of taking them. False: it needs
        them nevertheless."""

    @abstractmethod
    def forget(self) -> None:
        """Another trace begins."""

    @abstractmethod
    def draw(self) -> None:
        """Shows the scope's moment: sets the picture's content and `summary`. Costs O(what is visible)."""

    @abstractmethod
    def facts(self) -> Facts:
        """What the picture shows, as a table."""

    def look(self) -> Look:
        """How it is looked at now."""
        scope = self.scope
        return Look(scope.moment - scope.origin, scope.request)

    def pose(self, look: Look) -> None:
        """For a picture, as it was looked at: nothing to press, and no words about how. The scope goes by itself."""
        self.posed = True
        for each in self.findChildren(QAbstractButton):
            each.hide()

    @property
    def tall(self) -> int:
        """Pixels of the design that it would like to be high, once it is drawn at its width; 0: it does not matter."""
        return 0

    def step_shown(self, known: int) -> int:
        """The place of the step at the cursor, of so many that are known here; -1 before the first."""
        return min(self.scope.place, known - 1)

    def see_all(self) -> None:
        """All of the run, where the picture may show a stretch of it."""

    def row_chosen(self, row: int) -> None:
        """A row of the table was activated; a subclass may select its request or go to its moment."""

    # -- what the scope does --------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Records that were taken."""
        return self._position

    @property
    def caught_up(self) -> bool:
        return self._position >= len(self.scope.trace.records)

    @property
    def _far_behind(self) -> bool:
        """Whether much of what led to the moment on show is still to be taken."""
        times, place = self.scope.trace.records.times, self._position
        if len(times) - place <= FAR_BEHIND:
            return False
        return times[min(place + FAR_BEHIND, len(times) - 1)] <= self.scope.moment

    def advance(self, deadline: float) -> None:
        """Takes new records until the clock passes the deadline, but a few in any case."""
        records = self.scope.trace.records
        begin, end = self._position, len(records)
        known = self.scope.trace.known.get(self.objectName()) if not begin else None
        if known is not None and self.adopt(known):
            self._position = end
        while self._position < end:
            batch = records[self._position : min(end, self._position + CHUNK)]
            self._position += len(batch)
            self.take(batch)
            if perf_counter() > deadline:
                break
        if self._position > begin:
            self._stale = True
        if self._far_behind:
            self.summary.say(tr("reading the run · {percent:.0f} %", percent=100 * self._position / end))

    def refresh(self) -> bool:
        """Draws, if anything is new and the last drawing is not of just now. Returns whether it drew new records, and
        not only because the cursor moved, which all panels follow at once."""
        if not self._stale or self._far_behind:
            return False
        now, moved = perf_counter(), self._moved
        if not moved and now < self._drawn_at + PAUSE:
            return False
        self._stale = self._moved = False
        self._drawn_at = now
        self.draw()
        if self.shows_table:
            self.table.show_facts(self.facts())
        return not moved

    def share_range(self, begin: float, end: float) -> None:
        """Shows these seconds since the run's beginning, where it has an axis of time: all on one clock do."""
        if (begin, end) != self.shared:
            self.shared = begin, end
            self.stale()

    def stale(self, *changed: object) -> None:
        """Something else is to be drawn, and soon."""
        self._stale = self._moved = True

    def catch_up(self) -> None:
        """Takes in and draws everything now."""
        self.advance(inf)
        self.stale()
        self.refresh()

    # -- the table ------------------------------------------------------------------------------------------------

    @property
    def shows_table(self) -> bool:
        return self.stack.currentWidget() is self.table

    def show_table(self, shown: bool) -> None:
        """The table, or the picture again."""
        self.stack.setCurrentWidget(self.table if shown else self.picture)
        if shown:
            self.table.show_facts(self.facts())
        self.stale()

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self.facts().csv())
        self.done.emit(tr("{panel}: the table was copied.", panel=self.title))

    def _on_trace(self) -> None:
        self._position = 0
        self.forget()
        self.stale()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.stale()

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(event.rect(), theme.current().panel)

    def close_down(self) -> None:
        """The view is going: the scope may outlive it."""
        self.scope.detach(self)
