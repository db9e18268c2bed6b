"""The timeline panel: what each slot computed when, what each step was given, and where the host's time went."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QToolButton

from app import storage
from app.inside.look import Look
from app.inside.panel import COMING, InsightPanel, tool_button
from app.inside.phases import PHASE_TITLES
from app.inside.timeline.axis import Axis
from app.inside.timeline.history import TimelineHistory
from app.inside.timeline.marks import MARK_WORDS, Mark
from app.inside.timeline.steps import PHASES
from app.inside.timeline.stretch import stretch
from app.inside.timeline.view import NOTHING, TimelineView
from app.inside.timeline.words import length_words, step_wordings
from app.language import tr, trn
from app.playback.scope import Scope
from app.plot.folds import NONE, idle_folds
from app.ui.look import theme
from app.ui.look.backstage import Backstage
from app.ui.tables.facts import Cell, Facts
from engine.trace import Record

THRESHOLDS = (None, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # seconds; None: from the median gap
MOST_ROWS = 4000  # of the table
MOST_DRAWN, LEAST_DRAWN = 32, 258  # slots that make a figure higher; pixels of the design in which the legend has room
THRESHOLD, AXIS, LEGEND = "timeline/stall_ms", "timeline/axis", "timeline/legend"
BY_ADAPTER = "timeline/by_adapter"
COLUMNS = (
    *(tr("step"), tr("start s"), tr("duration ms"), tr("rows"), tr("prefill tokens"), tr("decode tokens")),
    *(tr("padding"), tr("wasted"), tr("budget")),
    *(tr("{phase} ms", phase=PHASE_TITLES[phase]) for phase in PHASES),
    *(tr("stalls"), tr("marks")),
)
AXES = {
    Axis.TIME: (tr("time"), tr("A step is as wide as it was long"), tr("Timeline: from left to right, time")),
    Axis.STEPS: (tr("steps"), tr("Every step has the same width"), tr("Timeline: from left to right, steps")),
}


class TimelinePanel(InsightPanel):
    """A click goes to a step in all panels, and selects the request whose bar it was on."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope, "timeline", tr("Timeline"))
        self.history = TimelineHistory()
        self.steps, self.marks = self.history.steps, self.history.marks
        self.view = TimelineView(self.steps, self.marks)
        self.view.cells.step_reader = scope.step_at
        self.history.cells, self.history.ranks = self.view.cells, self.view.ranks
        self._followed = True
        self._drawn = 0  # steps
        self._rows: list[int] = []  # places of the table's steps
        self._make_head()
        self._make_menu()
        self.set_picture(self.view)
        self.view.step_clicked.connect(self._on_step)
        self.view.request_clicked.connect(scope.select)
        self.view.range_changed.connect(self.stale)
        self.view.selection_changed.connect(self.stale)
        self.view.follow_changed.connect(self.stale)

    def _make_head(self) -> None:
        said = tr("Timeline: back to the newest")
        self.live = tool_button("timeline_live", tr("→ live"), tr("Keeps the newest in sight again"), said)
        self.live.clicked.connect(self._on_live)
        self.live.hide()
        self.axes: dict[Axis, QToolButton] = {}
        at = self.head.indexOf(self.menu_button)
        self.head.insertWidget(at, self.live)
        for i, (axis, words) in enumerate(AXES.items(), at + 1):
            button = self.axes[axis] = tool_button(f"timeline_axis_{axis}", *words)
            button.setCheckable(True)
            button.setAutoExclusive(True)
            button.toggled.connect(lambda on, axis=axis: self.set_axis(axis) if on else None)
            self.head.insertWidget(i, button)
        Backstage(self, self.live, *self.axes.values())
        remembered = str(storage.settings().value(AXIS, Axis.TIME))
        self.axes[Axis(remembered) if remembered in list(Axis) else Axis.TIME].setChecked(True)

    def _make_menu(self) -> None:
        first = self.menu.actions()[0]
        stalls = self.menu.addMenu(tr("Stalls: gaps between tokens over"))
        stalls.setObjectName("timeline_stalls")
        self.menu.insertMenu(first, stalls)
        self.thresholds: dict[float | None, QAction] = {}
        group = QActionGroup(self)
        for seconds in THRESHOLDS:
            words = length_words(seconds) if seconds else tr("4 × the median gap, and at least 50 ms")
            action = self.thresholds[seconds] = QAction(words, group, checkable=True)
            stalls.addAction(action)
            action.triggered.connect(lambda checked=False, seconds=seconds: self.set_threshold(seconds))
        saved = str(storage.settings().value(THRESHOLD, ""))
        known = {f"{seconds * 1e3:g}": seconds for seconds in THRESHOLDS if seconds}
        self._threshold = known.get(saved)
        self.thresholds[self._threshold].setChecked(True)
        self.marks.clear(self._threshold)
        self.view.legend = str(storage.settings().value(LEGEND, "true")) != "false"
        self.legend_action = QAction(tr("Legend"), self.menu, checkable=True, checked=self.view.legend)
        self.legend_action.toggled.connect(self._on_legend)
        self.menu.insertAction(first, self.legend_action)
        chosen = str(storage.settings().value(BY_ADAPTER, "true")) != "false"
        self.view.color_by_adapter(chosen)
        self.by_adapter = QAction(tr("Colour by adapter"), self.menu, checkable=True, checked=chosen)
        self.by_adapter.toggled.connect(self._on_by_adapter)
        self.by_adapter.setVisible(False)
        self.menu.insertAction(first, self.by_adapter)
        self.menu.insertSeparator(first)

    # -- what a person chooses ------------------------------------------------------------------------------------

    def set_axis(self, axis: Axis) -> None:
        """What runs from left to right; remembered."""
        self.axes[axis].setChecked(True)
        self.view.set_axis(axis)
        storage.settings().setValue(AXIS, str(axis))
        self.stale()

    def set_threshold(self, seconds: float | None) -> None:
        """From which gap on a stall is marked, None for four times the median; remembered."""
        self._threshold = seconds
        self.thresholds[seconds].setChecked(True)
        storage.settings().setValue(THRESHOLD, f"{seconds * 1e3:g}" if seconds else "")
        self._restart()

    def _on_legend(self, shown: bool) -> None:
        self.view.legend = shown
        storage.settings().setValue(LEGEND, "true" if shown else "false")
        self.view.grow()

    def _on_by_adapter(self, chosen: bool) -> None:
        self.view.color_by_adapter(chosen)
        storage.settings().setValue(BY_ADAPTER, "true" if chosen else "false")

    def _on_live(self) -> None:
        self.view.follow()
        self.scope.follow()
        self.stale()

    def _on_step(self, place: int) -> None:
        if place < self.scope.steps:
            self.scope.seek(float(self.scope.step_ends[place]))

    # -- a picture of it ------------------------------------------------------------------------------------------

    def look(self) -> Look:
        return replace(super().look(), axis=str(self.view.axis), sight=self.view.range())

    def pose(self, look: Look) -> None:
        super().pose(look)
        view = self.view
        view.legend = True
        view.set_axis(Axis(look.axis or Axis.TIME))
        if look.sight is not None:
            view.set_range(*look.sight)

    @property
    def tall(self) -> int:
        return theme.px(max(LEAST_DRAWN, 150 + 12 * min(self.view.slots, MOST_DRAWN)))

    # -- the trace ------------------------------------------------------------------------------------------------

    def take(self, records: Sequence[Record]) -> None:
        self.history.take(records)
        self._told()

    def adopt(self, known: TimelineHistory) -> bool:
        if not known.marks.knows(self._threshold):
            return False
        self.history.adopt(known)
        self._told()
        return True

    def _told(self) -> None:
        """The view learns what is known of the run as a whole."""
        history, view = self.history, self.view
        view.device, view.budget = history.device, history.budget
        self.by_adapter.setVisible(bool(view.cells.adapters))
        view.set_rest(not history.presence.there)
        view.set_slots(1)
        view.set_folds(idle_folds(history.presence, history.origin))

    def _restart(self) -> None:
        """Reads the trace again from its beginning."""
        self._position, self._drawn = 0, 0
        self.history.clear(self._threshold)
        self.view.set_folds(NONE)
        self.stale()

    def forget(self) -> None:
        self._restart()
        self._followed = True
        self.view.device, self.view.budget = False, None
        self.view.clear()

    def draw(self) -> None:
        view, scope = self.view, self.scope
        if len(self.steps) != self._drawn:
            self._drawn = len(self.steps)
            view.grow()
        view.empty_text = COMING if scope.begun else NOTHING
        view.select(scope.request)
        if scope.following and not self._followed:
            view.follow()
        self._followed = scope.following
        view.set_moment(None if scope.following else scope.moment - self.history.origin)
        view.set_live(scope.following and not scope.trace.complete)
        self.live.setVisible(not (scope.trace.complete or view.follows or view.shared) and len(self.steps) > 0)
        place = len(self.steps) - 1 if scope.following else self.step_shown(len(self.steps))
        told = 0 <= place < len(self.steps) and not self.posed
        view.say(*(step_wordings(self.steps.row(place)) if told else ("",)))
        self.summary.say(*self._sight_words())
        if view.selection is not None:
            begin, end = view.selection
            there = self.history.presence.seconds(begin + self.history.origin, end + self.history.origin)
            view.say_selection(stretch(self.steps, self.marks, begin, end, there).lines())
        view.update()

    def _sight_words(self) -> tuple[str, ...]:
        """In what share of the seconds in sight with requests nothing was computed, and how many stalls there are; from
        its longest wording to its shortest."""
        view = self.view
        if not len(self.steps):
            return ("",)
        begin, end = view.moments()
        there = self.history.presence.seconds(begin + self.history.origin, end + self.history.origin)
        words, short = [], []
        if there:
            idle = max(0.0, 1 - self.steps.busy(begin, end, view.device) / there)
            percent = 100 * idle
            if view.device and not self.steps.clocked:
                words.append(tr("at least {percent:.0f} % of the time nothing was computed", percent=percent))
                short.append(tr("at least {percent:.0f} % not computing", percent=percent))
            else:
                words.append(tr("{percent:.0f} % of the time nothing was computed", percent=percent))
                short.append(tr("{percent:.0f} % not computing", percent=percent))
        stalls = len(self.marks.stalls(begin, end))
        if stalls:
            least = length_words(self.marks.threshold)
            each = trn(
                "{count:,} stall of over {length}", "{count:,} stalls of over {length} each", stalls, length=least
            )
            words.append(each)
            short.append(trn("{count:,} stall", "{count:,} stalls", stalls))
        return "  ·  ".join(words), "  ·  ".join(short), *short[:1], ""

    # -- the table ------------------------------------------------------------------------------------------------

    def facts(self) -> Facts:
        view = self.view
        first, last = self.steps.in_sight(*view.moments())
        until = min(last, first + MOST_ROWS)
        self._rows = list(range(first, until))
        marks, stalls = self._by_step(first, until)
        rows: list[tuple[Cell, ...]] = []
        for place in self._rows:
            row = self.steps.row(place)
            tokens = [row.tokens[kind] for kind in ("prefill", "decode", "padding", "wasted")]
            phases = [1e3 * row.seconds[phase] for phase in PHASES]
            first_cells = (row.step, row.started, 1e3 * (row.ended - row.started), row.rows)
            found = (stalls[place], ", ".join(marks.get(place, ())))
            rows.append((*first_cells, *tokens, view.budget, *phases, *found))
        if until < last:
            note = tr("{n:,} of {all:,} steps in sight; zoom in for the others", n=until - first, all=last - first)
            rows.append((note, *(None,) * (len(COLUMNS) - 1)))
        return Facts(COLUMNS, rows)

    def _by_step(self, first: int, last: int) -> tuple[Mapping[int, list[str]], Counter[int]]:
        """The marks of each step in words, and how many stalls ended with it."""
        marks: defaultdict[int, list[str]] = defaultdict(list)
        if last <= first:
            return marks, Counter()
        ends = self.view.cells.step_ends
        begin = float(ends[first - 1]) if first else -inf
        end = float(ends[last - 1]) if last < len(ends) else inf
        seen = self.marks.marks(begin, end)
        for kind, time, request in zip(seen.kind.tolist(), seen.time.tolist(), seen.request.tolist()):
            of = f" {request}" if request >= 0 else ""
            marks[self._step_of(time, kind)].append(f"{MARK_WORDS[Mark(kind)]}{of}")
        return marks, Counter(np.searchsorted(ends, self.marks.stalls(begin, end).end).tolist())

    def _step_of(self, time: float, kind: int) -> int:
        """The place of the step with which a mark came: ends are told after their step, others with or before it."""
        ends = self.view.cells.step_ends
        after = int(np.searchsorted(ends, time, "left" if kind == Mark.FIRST_TOKEN else "right"))
        if kind in (Mark.FINISHED, Mark.CANCELLED, Mark.ERROR):
            return max(0, after - 1)
        return min(after, len(ends) - 1)

    def see_all(self) -> None:
        self.view.set_selection(None)
        self.view.fit()

    def row_chosen(self, row: int) -> None:
        if row < len(self._rows):
            self._on_step(self._rows[row])
