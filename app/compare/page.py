"""The Compare page: the same prompts through several ways of batching, lane above lane on one clock."""

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QSizePolicy, QStackedWidget, QWidget

from app.compare.choice import RaceChoice, choice_of
from app.compare.lanes.view import LaneView
from app.compare.race.charts import RaceCharts
from app.compare.race.lane_show import LaneShow
from app.compare.race.replay_bar import ReplayBar
from app.compare.race.report import Report as RaceReport
from app.compare.race.results import BESIDE, ResultTable
from app.compare.race.saved import SavedRaces
from app.compare.race.session import RaceSession
from app.compare.race.verdict import verdict
from app.compare.race.verdict_card import VerdictCard
from app.compare.setup import RaceSetup
from app.compare.sweep.panel import SweepPanel
from app.compare.sweep.session import SweepSession
from app.inside.insights import Insight
from app.inside.panel import InsightPanel
from app.inside.timeline.picture.legend import SlotsLegend
from app.language import shipped, tr
from app.playback.cursor_bar import cursor_key
from app.session.lessee import Phase
from app.session.session import Session
from app.ui.banner import Banner
from app.ui.controls import button
from app.ui.export import Entry, ExportMenu, Table, table_entries, table_menu, write_drawing, write_picture
from app.ui.labels import label
from app.ui.layout.boxes import Scrolled, column, discard, held
from app.ui.look import theme
from app.ui.look.backstage import Backstage
from app.ui.page import Page
from app.words import sentence, unlike_words
from engine.compare import RACE_SUFFIX, RaceResult
from engine.jobs import engine_missing
from engine.library import SideBySide

FOUR_CHARTS, THREE_CHARTS = 920, 700  # pixels of the design
PAIR = 2  # charts in a line where four have no room
LINE_HEIGHT, LINE_TALLEST = 236, 320  # pixels of the design, of the charts in one line
PAIRS_HEIGHT, PAIRS_TALLEST = 388, 560  # in two: the usual measures are whole beside them
VIEWER_WORDS = tr("A saved race is shown here: press Ctrl+O for one, or drop its file.")
EMPTY_WORDS = tr("The same prompts through every lane, one lane after another, then all side by side on one clock.")
RACE_FILE = tr("Race")  # the kind of file that a whole race is saved as


class ComparePage(Page):
    """Builds the panels and joins their signals; holds nothing else."""

    panel_built = Signal(object)  # InsightPanel of a lane

    def __init__(self, session: Session, parent: QWidget) -> None:
        super().__init__("compare_page", parent)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self._session = session
        self.race = RaceSession(session, self)
        self.charts, self.result = RaceCharts(), ResultTable()
        self.sweep = SweepSession(session, self)
        file = Entry(RACE_FILE, RACE_SUFFIX, self._save_race)
        png = Entry(tr("Picture"), ".png", lambda path: write_picture(self._scroll.sheet, path, theme.current().window))
        drawn = partial(write_drawing, title=tr("A race"))
        svg = Entry(tr("Drawing"), ".svg", lambda path: drawn(self._scroll.sheet, path, ground=theme.current().window))
        entries = [file, png, svg, *table_entries(self._table)]
        said = partial(ExportMenu, title=tr("Save the race"), what=tr("The race"), stem="race", each=tr("Save as"))
        self.export = said(self, entries, ready=lambda: self.race.file is not None and self._table() is not None)
        self.sweep_export = table_menu(self, lambda: self.sweep.result, "sweep")
        self.setup = RaceSetup(self.export, self)
        self.notice = Banner()
        self.saved = SavedRaces(session, self.notice, self)
        self.replay = ReplayBar(self.race)
        self.legend, self.verdict = SlotsLegend(), VerdictCard()
        Backstage(self, self.setup, self.notice)
        self.below = Backstage(self, self.charts, self.result)
        self.sweep_panel = SweepPanel(self.sweep)
        self.sweep_panel.show_choice(self.setup.choice)
        self.views: list[LaneView] = []
        self._chosen: tuple[float, float] | None = None  # seconds that a person chose to see of all lanes
        self._terms = self.setup.choice.limits.slo, self.setup.choice.price
        self._make_actions()
        self._lay_out()
        self._connect()

    def _make_actions(self) -> None:
        names = (
            tr("Start the race or sweep"),
            tr("Stop the race or sweep"),
            tr("Replay the race"),
            tr("Race or sweep"),
            tr("Save the race …"),
        )
        actions = [QAction(name, self) for name in names]
        self.addActions(actions)
        self.race_action, self.stop_action, self.replay_action, self.sweep_action, self.save_action = actions
        self.save_action.setShortcut(QKeySequence("Ctrl+S"))
        self.race_action.setShortcuts([QKeySequence("Ctrl+Return"), QKeySequence("Ctrl+Enter")])

    def _lay_out(self) -> None:
        said = tr("Start the race")
        self.start_button = button("race_first", tr("Race   Ctrl ⏎"), self.start, role="primary", said=said)
        self.about = label("", "title", "compare_about")
        lines = self.about, label(VIEWER_WORDS if engine_missing() else EMPTY_WORDS, "secondary", "compare_empty")
        for line in lines:
            line.setAlignment(Qt.AlignmentFlag.AlignCenter)
            line.setWordWrap(True)
        start = (self.start_button, 0, Qt.AlignmentFlag.AlignCenter)
        self.empty = held(column(None, *lines, start, None, margins=None, spacing=16))
        self._lanes = column(spacing=8)
        self._bottom = QGridLayout()
        self._bottom.setSpacing(8)
        self._bottom.setColumnStretch(0, 1)
        self._bottom.addWidget(self.charts, 0, 0)
        self._bottom.addWidget(self.result, 0, 1)
        shown = (self._lanes, 5), self.legend, self.verdict, self.replay, (self._bottom, 2)
        self._scroll = Scrolled(column(*shown, spacing=8), "race_scroll", tr("race"))
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._body = QStackedWidget()
        for widget in (self.empty, self._scroll, self.sweep_panel):
            self._body.addWidget(widget)
        self._body.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Ignored)
        self.setLayout(column(self.setup, self.notice, (self._body, 1), margins=(8, 8, 8, 8), spacing=8))

    def _connect(self) -> None:
        race = self.race
        self.setup.undoable.connect(self.undoable)
        self.setup.race_asked.connect(self.start)
        self.setup.stop_asked.connect(self.stop)
        self.setup.sweep_shown.connect(self._show_body)
        self.sweep_panel.edited.connect(lambda: self.setup.take(self.sweep_panel.applied(self.setup.choice)))
        self.sweep_panel.asked.connect(self.start)
        self.race_action.triggered.connect(self.start)
        self.stop_action.triggered.connect(self.stop)
        self.sweep_action.triggered.connect(lambda: self.setup.show_sweep(not self.setup.sweeps))
        self.replay_action.triggered.connect(race.toggle)
        self.save_action.triggered.connect(lambda: self.export.ask(RACE_FILE))
        for lessee in (race, self.sweep):
            lessee.phase_changed.connect(self._on_phase)
            lessee.refused.connect(self._on_refused)
        self.replay.view_chosen.connect(self._on_view)
        race.phase_changed.connect(lambda phase: self._leave_end() if phase is Phase.ENDING else None)
        race.race_begun.connect(self._on_begun)
        race.clock_moved.connect(self._on_clock)
        race.span_changed.connect(self._on_span)
        race.race_over.connect(self._on_over)
        self.saved.race_read.connect(self._on_race_read)
        self.saved.runs_read.connect(self._on_runs_read)
        race.reported.connect(self._on_reported)
        self.result.widened.connect(self._place)
        self.setup.choice_changed.connect(self._on_choice)
        for menu in (self.export, self.sweep_export):
            self._tell_of(menu)
        theme.changes.theme_changed.connect(self._place)
        self._place()
        self._on_phase()
        self._say_workload()

    # -- what a person does ---------------------------------------------------------------------------------------

    @property
    def lanes_place(self) -> QWidget:
        """Where the lanes are, with what is below them."""
        return self._scroll

    @property
    def running(self) -> bool:
        """Whether a race or a sweep is under way."""
        return self.race.running or self.sweep.running

    def start(self) -> None:
        """Begins what is on show, the race or the sweep."""
        if not (self.race.busy or self.sweep.busy):
            self.notice.hide()
            (self.sweep if self.setup.sweeps else self.race).start(self.setup.choice)

    def stop(self) -> None:
        for lessee in (self.race, self.sweep):
            if lessee.running:
                lessee.stop()

    def give_up(self) -> bool:
        if self.saved.reading:
            self.saved.close()
        elif self.running:
            self.stop()
        else:
            return False
        return True

    def take_file(self, path: Path) -> bool:
        """A file of prompts is a workload."""
        if path.is_dir():
            return False
        if not self.running:
            self.setup.open_file(path)
        return True

    def ask_file(self, take: Callable[[str], object]) -> bool:
        self.setup.choose_file(take)
        return True

    def close_down(self) -> None:
        """What runs is ended, no frame follows."""
        self.saved.close()
        self.race.close()
        self.sweep.close()

    def open_race(self, path: Path) -> None:
        """Reads a race that was kept and shows it as if it had just ended; one that is being read is given up."""
        if self._free():
            self.saved.read_race(path)

    def open_runs(self, paths: Sequence[Path]) -> None:
        """Reads several runs and shows them as the lanes of a race."""
        if self._free():
            self.saved.read_runs(paths)

    def _free(self) -> bool:
        if self.race.busy or self.sweep.busy:
            self.notice.tell("warning", tr("A race is running"), tr("A saved one can be shown when it is over."))
        return not (self.race.busy or self.sweep.busy)

    def show_race(self, result: RaceResult, choice: RaceChoice, path: Path) -> None:
        """A race that was read from a file, as if it had just ended, and the choice it was begun with."""
        self.setup.show_sweep(False)
        self.setup.take(choice)
        self.race.open(result, choice.to_json(), path)

    def _on_race_read(self, result: RaceResult, asked: str, path: Path) -> None:
        if not (self.race.busy or self.sweep.busy):
            self.setup.show_sweep(False)
            self.setup.change(tr("took a race's settings"), choice_of(result, asked, self.setup.choice))
            self.race.open(result, asked, path)
            title = tr("A saved race: {name}", name=path.stem)
            self.notice.tell("info", title, tr("Space plays it; Race runs it once more."))

    def _on_runs_read(self, read: SideBySide) -> None:
        if not (self.race.busy or self.sweep.busy):
            self.setup.show_sweep(False)
            self.setup.change(tr("took the runs' settings"), choice_of(read.race, "", self.setup.choice))
            self.race.open(read.race)
            title = tr("{count} saved runs on one clock", count=len(read.race.lanes))
            if read.differs:
                words = tr(
                    "They differ in {unlike}: the clock is common to them, their figures are not of one race.",
                    unlike=unlike_words(read.differs),
                )
                self.notice.tell("warning", title, words)
            else:
                words = tr("The same prompts, model and machine; each from its first request on. Space plays them.")
                self.notice.tell("info", title, words)

    def _save_race(self, path: Path) -> None:
        """A copy of the file in which the race on show is kept. Raises OSError."""
        if self.race.file is not None and path != self.race.file:
            shutil.copyfile(self.race.file, path)

    def _table(self) -> Table | None:
        """What is exported of the race."""
        return self.result.comparison

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Space plays and pauses all lanes; comma and period go by the steps of the first, F to the end."""
        replays = self.race.can_replay and not self.setup.sweeps
        if replays and event.key() == Qt.Key.Key_Space:
            self.race.toggle()
        elif not (replays and self.views and cursor_key(self.views[0].lane.scope, event)):
            super().keyPressEvent(event)

    # -- slots ----------------------------------------------------------------------------------------------------

    def _on_phase(self) -> None:
        ending = not self.running and (self.race.busy or self.sweep.busy)
        begins = not (self.running or ending or engine_missing())
        for start in (self.race_action, self.start_button, self.sweep_panel.start_button):
            start.setEnabled(begins)
            start.setToolTip(sentence(engine_missing()))
        self.stop_action.setEnabled(self.running)
        self.replay_action.setEnabled(self.race.can_replay)
        self.save_action.setEnabled(self.race.file is not None)
        self.setup.say_running(self.running, ending)

    def _show_body(self) -> None:
        self.setup.export.setMenu(self.sweep_export if self.setup.sweeps else self.export)
        race = self._scroll if self.views else self.empty
        self._body.setCurrentWidget(self.sweep_panel if self.setup.sweeps else race)

    def _on_begun(self) -> None:
        for view in self.views:
            view.close_down()
        discard(self._lanes, *self.views)
        self.views = [LaneView(lane, self.race) for lane in self.race.lanes]
        self.charts.clear()
        lanes = [lane.lane for lane in self.race.lanes]
        adapters = dict.fromkeys(name for lane in lanes for name in lane.spec.adapter_names)
        self.legend.tell(any(lane.config.mode == "recompute" for lane in lanes), tuple(adapters))
        self._chosen = None
        for view in self.views:
            self._lanes.addWidget(view, 1)
            view.panel_built.connect(self._tell_of)
            view.panel_built.connect(self.panel_built)
            view.range_changed.connect(self._on_range)
            view.set_view(self.replay.view.currentData())
            self._chart(view.lane)
        self._on_reported(None)
        first = self.views[0]
        for view in self.views[1:]:
            first.figures_changed.connect(lambda view=view: view.set_base(first.figures))
        self._on_span(self.race.span)
        self._show_body()
        self._on_phase()
        self.setFocus()

    def _chart(self, lane: LaneShow) -> None:
        """Joins a lane to the charts."""
        number, playback = self.charts.add_lane(lane.name), lane.playback
        playback.trace_changed.connect(lambda: self.charts.reset(number))
        playback.recorded.connect(lambda records: self.charts.feed(number, records, playback.origin or 0.0))

    def _on_reported(self, report: RaceReport | None) -> None:
        self.result.set_report(report)
        titles = tuple(lane.title for lane in self.race.lanes)
        if len(set(titles)) < len(titles):
            titles = tuple(lane.name for lane in self.race.lanes)
        self.verdict.show_verdict(None if report is None else verdict(report.comparison, titles))

    def _on_view(self, insight: Insight | None) -> None:
        self.legend.setVisible(insight is None)
        for view in self.views:
            view.set_view(insight)
        self._leave_end()

    def _leave_end(self) -> None:
        """At the end of a race nothing is held any more: what looks inside goes to where the most was happening."""
        race = self.race
        if self.replay.view.currentData() is not None and race.can_replay and race.clock >= race.longest:
            race.pause()
            race.seek(race.busiest)

    def _tell_of(self, exports: ExportMenu | InsightPanel) -> None:
        exports.failed.connect(lambda words: self.notice.tell("error", words, ""))
        exports.done.connect(lambda words: self.notice.tell("info", words, "", passes=True))

    def _say_workload(self) -> None:
        card = self.setup.card
        self.about.setText(shipped(card.description) if card is not None else self.setup.choice.workload)

    def _on_choice(self) -> None:
        self._say_workload()
        choice = self.setup.choice
        terms = choice.limits.slo, choice.price
        if not self.race.running and terms != self._terms:
            self.race.judge(*terms)
        self._terms = terms

    def _place(self) -> None:
        """The table beside the charts, which stand in two lines where they have no room in one; or below them where
        they have none even so: nothing is ever cut off."""
        queue = self.charts.queue.parentWidget()
        if queue is not None:
            queue.setVisible(self.width() >= theme.px(FOUR_CHARTS))
        latency = self.charts.itl.parentWidget()
        if latency is not None:
            latency.setVisible(self.width() >= theme.px(THREE_CHARTS))
        beside, room = min(self.result.wanted, theme.px(BESIDE)), self._scroll.viewport().width()
        rest = room - self._bottom.spacing() - beside
        every = len(self.charts.charts)
        in_line, narrow = self.charts.least(every) <= rest, self.charts.least(PAIR) > rest
        self.charts.wrap(every if in_line or narrow else PAIR)
        for each in (self.charts, self.result):
            each.setMinimumHeight(theme.px(LINE_HEIGHT if in_line or narrow else PAIRS_HEIGHT))
            each.setMaximumHeight(theme.px(LINE_TALLEST if in_line or narrow else PAIRS_TALLEST))
        self.result.give(room if narrow else theme.px(BESIDE))
        self._bottom.removeWidget(self.result)
        self._bottom.addWidget(self.result, 1 if narrow else 0, 0 if narrow else 1)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def _on_refused(self, words: str, requests_run: bool) -> None:
        if requests_run:
            self.notice.tell("warning", tr("It cannot begin yet"), words, action=(tr("Stop them"), self._session.stop))
        else:
            self.notice.tell("error", tr("It cannot begin"), sentence(words))

    def _on_clock(self, clock: float) -> None:
        for i, view in enumerate(self.views):
            self.charts.set_cursor(i, view.set_clock(clock))

    def _on_span(self, span: float) -> None:
        for view in self.views:
            view.show_range(*(self._chosen or (0.0, span)), span)

    def _on_range(self, begin: float, end: float) -> None:
        """All lanes stand on one clock."""
        self._chosen = None if begin <= 0 and end >= self.race.span else (begin, end)
        self._on_span(self.race.span)

    def _on_over(self, result: RaceResult) -> None:
        if result.cancelled:
            done = sum(bool(result.traces(i)) for i in range(len(result.lanes)))
            title = tr("Stopped: {done} of {all} lanes", done=done, all=len(result.lanes))
            self.notice.tell("info", title, tr("What was finished stays and can be replayed."))
        self._on_phase()
