"""The sweep: which sizes or rates, how far it is, the charts, what to take and why, and every point in a table."""

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QHeaderView, QSizePolicy, QWidget

from app.compare.choice import RaceChoice
from app.compare.lanes.mark import LaneMark
from app.compare.sweep.charts import SweepChart, SweptPoint
from app.compare.sweep.session import SweepSession
from app.compare.words import measure_title
from app.language import digits, tr
from app.session.lessee import Phase
from app.ui.controls import DropDown, button, line_edit
from app.ui.labels import Heading, label
from app.ui.layout.boxes import Scrolled, column, discard, fill, held, panel, row
from app.ui.layout.zoomed import sized
from app.ui.progress import Progress
from app.ui.tables.columns import ColumnModel
from app.ui.tables.fact_table import cell_column
from app.ui.tables.facts import Cell
from app.ui.tables.view import TableView
from app.words import sentence
from engine.compare import SweepOutcome, SweepResult
from engine.trace import MEASURES, Measure

MEASURED = ("output_throughput", "average_latency", "ttft.p99", "tpot.p99", "itl.p99", "e2e.p99")
EMPTY_WORDS = tr("Each lane at every batch size: where more batching stops paying, and what to take.")
POINTS = tr("Points of the sweep")
LINE = 24
SETTINGS = {  # whether they are rates: what they are
    False: (
        tr("Batch sizes"),
        tr("How many requests run at once, with commas between them; the lanes' own sizes are not used"),
    ),
    True: (
        tr("Requests a second"),
        tr("Requests a second, with commas between them; each lane keeps its own batch size"),
    ),
}
MARKS = {"knee": tr("knee"), "recommended": tr("recommended")}


class SweepModel(ColumnModel[Sequence[Cell]]):
    """A row a point, in order of lane and setting."""

    def show(self, result: SweepResult | None, marks: bool) -> None:
        """`marks`: whether the knee and what is recommended can be told yet."""
        if result is None:
            self.show_rows((), ())
            return
        measures = [MEASURES[key] for key in (*MEASURED, *result.asked)]
        heads = [(tr("lane"), ""), (tr("rate") if result.by_rate else tr("batch"), "")]
        heads += [*((measure_title(m), f"{measure_title(m)} = {m.formula}") for m in measures), ("", "")]
        last = len(heads) - 1
        columns = [cell_column(i, title, tip, right=0 < i < last) for i, (title, tip) in enumerate(heads)]
        outcomes = sorted(result.outcomes, key=lambda o: (o.point.series, o.point.setting))
        self.show_rows([_cells(result, outcome, measures, marks) for outcome in outcomes], columns)


def _cells(result: SweepResult, outcome: SweepOutcome, measures: Sequence[Measure], marks: bool) -> list[str]:
    said = tr("failed: {why}", why=outcome.error) if outcome.error and not outcome.metrics else ""
    if marks and not said:
        said = ", ".join(MARKS[mark] for mark in result.marks(outcome))
    figures = (digits(m.text(outcome.value(m.key))) for m in measures)
    return [result.names[outcome.point.series], result.label(outcome), *figures, said]


class SweepPanel(QWidget):
    """Edits the sweep's part of a `RaceChoice`; the lanes and rules are those of the bar above."""

    edited = Signal()
    asked = Signal()  # the sweep is to begin

    def __init__(self, sweep: SweepSession) -> None:
        super().__init__()
        self.setObjectName("sweep_panel")
        self._sweep = sweep
        self._showing = False
        kinds = [(tr("batch sizes"), False), (tr("request rates"), True)]
        self.by = sized(DropDown("sweep_by", kinds, tr("What is swept")), least_width=136)
        self.settings = sized(line_edit("sweep_settings"), width=220)
        self.status = label("", "secondary", "sweep_status")
        self.status.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.progress = Progress("sweep_progress", POINTS)
        self.chart = sized(SweepChart(), least_height=280)
        self.model = SweepModel()
        self.table = TableView("sweep_table", POINTS, self.model, None, LINE)
        self.table.setSelectionMode(TableView.SelectionMode.NoSelection)
        self.table.horizontalHeader().setSectionsClickable(False)
        sized(self.table, least_height=160)
        self._lay_out()
        self.by.currentIndexChanged.connect(self._on_by)
        self.settings.editingFinished.connect(self._on_edited)
        sweep.begun.connect(self._on_measured)
        sweep.measured.connect(self._on_measured)
        sweep.progressed.connect(self._on_progress)
        sweep.phase_changed.connect(self._on_phase)
        self._typed = {False: "", True: ""}  # whether the settings are rates
        self._on_measured()

    def _lay_out(self) -> None:
        head = QGridLayout()
        head.setContentsMargins(12, 8, 12, 8)
        head.setHorizontalSpacing(12)
        head.setVerticalSpacing(6)
        line = label(tr("Every lane at these"), "secondary"), self.by, self.settings, self.status
        for i, widget in enumerate(line):
            head.addWidget(widget, 0, i)
        head.addWidget(self.progress, 1, 0, 1, len(line))
        head.setColumnStretch(3, 1)
        self._advice = column(spacing=6)
        self._advised: list[QWidget] = []
        advice = column(Heading(tr("What to take")), self._advice, margins=(12, 10, 12, 10), spacing=6)
        points = column(Heading(tr("Points")), self.table, margins=(12, 10, 12, 8), spacing=4)
        self._advice_panel, self._points_panel = panel(advice), panel(points)
        about, middle = label(EMPTY_WORDS, "title", "sweep_empty"), Qt.AlignmentFlag.AlignCenter
        about.setAlignment(middle)
        about.setWordWrap(True)
        said = tr("Start the sweep")
        self.start_button = button("sweep_first", tr("Sweep   Ctrl ⏎"), self.asked, role="primary", said=said)
        self.empty = held(column(None, about, (self.start_button, 0, middle), None, spacing=16))
        parts = panel(head), (self.chart, 3), self._advice_panel, (self._points_panel, 2), (self.empty, 1)
        scroll = Scrolled(column(*parts, spacing=8))
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setLayout(column(scroll))

    # -- what is chosen -------------------------------------------------------------------------------------------

    def show_choice(self, choice: RaceChoice) -> None:
        self._showing = True
        self._typed = {False: choice.sizes, True: choice.rates}
        self.by.set_value(choice.by_rate)
        self._show_settings()
        self._showing = False

    def applied(self, choice: RaceChoice) -> RaceChoice:
        """The choice with this sweep."""
        return replace(choice, by_rate=self.by.currentData(), sizes=self._typed[False], rates=self._typed[True])

    def _show_settings(self) -> None:
        said, tip = SETTINGS[self.by.currentData()]
        self.settings.setText(self._typed[self.by.currentData()])
        self.settings.setAccessibleName(said)
        self.settings.setToolTip(tip)

    def _on_by(self) -> None:
        self._show_settings()
        if not self._showing:
            self.edited.emit()

    def _on_edited(self) -> None:
        self._typed[self.by.currentData()] = self.settings.text()
        self.edited.emit()

    # -- what was measured ----------------------------------------------------------------------------------------

    def _on_phase(self, phase: Phase) -> None:
        for control in (self.by, self.settings):
            control.setEnabled(phase not in (Phase.RUNNING, Phase.ENDING))
        self._on_measured()

    def _on_progress(self) -> None:
        sweep, result = self._sweep, self._sweep.result
        words = sweep.words()
        if not words and result is not None:
            stopped = result.cancelled and not sweep.busy
            words = tr("{done} of {all} points", done=sweep.done, all=sweep.points)
            words = tr("stopped: {points}", points=words) if stopped else words
        self.status.setText(words)
        self.status.setToolTip(words)
        self.progress.setVisible(result is not None)
        self.progress.show_share(sweep.done, max(1, sweep.points))

    def _on_measured(self) -> None:
        result = self._sweep.result
        final = not self._sweep.running
        self.model.show(result, final)
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        if header.count():
            header.setSectionResizeMode(header.count() - 1, QHeaderView.ResizeMode.Stretch)
        shown = result is not None
        for widget in (self.chart, self._points_panel):
            widget.setVisible(shown)
        self.empty.setVisible(not shown and final)
        if result is not None:
            latency = measure_title(MEASURES[latency_of(result)])
            self.chart.show_points(points_of(result, final), by_rate=result.by_rate, latency=latency)
            self._show_advice(result)
        self._advice_panel.setVisible(shown and final)
        self._on_progress()

    def _show_advice(self, result: SweepResult) -> None:
        discard(self._advice, *self._advised)
        self._advised = []
        for i, name in enumerate(result.names):
            advice = result.recommend(i)
            reason = advice.reason
            if not result.by_rate and advice.outcome is not None:
                reason = tr("batch {advice}", advice=reason)
            words = label(sentence(reason) + ".", "secondary", f"sweep_advice_{i}")
            words.setWordWrap(True)
            self._advised.append(held(row(LaneMark(i), label(name, "title"), (words, 1), spacing=8)))
        fill(self._advice, *self._advised)


def latency_of(result: SweepResult) -> str:
    """The measure a sweep is judged by: that of its first limit, else the gaps between tokens, or the wait for them."""
    return f"{next(iter(result.slo.limits), 'ttft' if result.by_rate else 'itl')}.p99"


def points_of(result: SweepResult, marks: bool = True) -> list[SweptPoint]:
    """What was measured, as the charts take it."""
    latency, points = latency_of(result), []
    for i, name in enumerate(result.names):
        for outcome in result.series(i):
            named = result.marks(outcome) if marks else ()
            average, p99 = (outcome.value(key) or 0.0 for key in ("average_latency", latency))
            named_so = "knee" in named, "recommended" in named
            points.append(SweptPoint(name, outcome.point.setting, outcome.throughput, average, p99, *named_so))
    return points
