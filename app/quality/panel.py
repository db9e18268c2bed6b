"""Compare with the original: what each quantization costs in quality, beside what it saves in memory and time."""

from itertools import pairwise

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence, QShowEvent
from PySide6.QtWidgets import QSizePolicy, QToolButton, QWidget

from app.language import tr
from app.quality.charts import QualityCharts
from app.quality.session import QualitySession
from app.quality.setup import QualitySetup
from app.quality.subject import Subject
from app.quality.table import QualityTableView
from app.quality.words import QualityTable, facts_words, measured_words, rows_of
from app.session.session import Session
from app.ui.controls import DropDown, button
from app.ui.export import ExportMenu, picture_entries, table_entries
from app.ui.labels import Hairline, Heading, Note, label, set_role
from app.ui.layout.boxes import column, held, row
from app.ui.line import Line
from app.ui.look import theme
from app.ui.progress import Progress
from app.ui.sheets.ask_path import ask_path
from app.words import model_words, sentence
from engine import ModelSpec
from engine.config import SCHEMES

EMPTY_WORDS = tr(
    "Perplexity, divergence from the original, speed, load time and bytes of each quantization, measured on a text: "
    "tick some, then measure."
)
BUSY_WORDS = tr("Each row comes as soon as it is measured, the original's first.")
NO_MODEL_WORDS = tr("Choose a model to compare its quantizations.")
TITLE = tr("Quality of quantizations")
SAVE = tr("Save: {title}", title=TITLE)
UPS: list[tuple[str, object]] = [(tr("KL divergence"), "divergence"), (tr("perplexity"), "perplexity")]


class QualityPanel(QWidget):
    """Shows one model's comparison; `show_model` says which."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.setObjectName("quality_panel")
        self.setAccessibleName(tr("Compare with the original"))
        self._session = session
        self.quality = QualitySession(session, self)
        self.setup = QualitySetup()
        self.model = Line("quality_model", size=12)
        self._wanted: ModelSpec | None = None  # to be put on show when the panel is
        self.begin = button("quality_begin", tr("Measure"), self._on_begin)
        self.undo = button("quality_clear", tr("Clear"), self._on_undo, role="quiet")
        self.status = Line("quality_status")
        self.progress = Progress("quality_progress", tr("Measured so far"))
        self.note = Note("quality_note")
        self.empty = label("", "secondary", "quality_empty")
        self.empty.setWordWrap(True)
        self.empty.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)  # a path may be very long
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.charts = QualityCharts()
        self.table = QualityTableView()
        self.facts = Line("quality_facts")
        self.on = Line("quality_on", size=12)
        self.up = DropDown("quality_up", UPS, tr("What is drawn upwards"))
        self.up.setToolTip(tr("What the charts draw upwards"))
        self.menu_button = QToolButton(popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
        self.menu_button.setObjectName("quality_menu")
        self.menu_button.setText("⋯")
        self.menu_button.setAccessibleName(tr("Copy or save the comparison"))
        self.menu_button.setToolTip(tr("Copy, or save as PNG, SVG, CSV, JSON or Markdown"))
        self.menu_button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._why_not = NO_MODEL_WORDS
        self._lay_out()
        entries = picture_entries(lambda: self.picture, TITLE, on_panel=True) + table_entries(self._table)
        what, ready = tr("The quality report"), lambda: self.quality.report is not None
        self.menu = ExportMenu(self, entries, title=SAVE, what=what, stem="quality", each=tr("Save as"), ready=ready)
        self.menu_button.setMenu(self.menu)
        self._connect()
        self._on_theme()
        self._show_subject()
        self._show_report()

    def _lay_out(self) -> None:
        foot = row(self.begin, (self.status, 1), self.undo, spacing=8)
        tools = held(row(label(tr("charts show"), "note"), self.up, self.menu_button, spacing=8))
        self._head, self._rule = Heading(tr("Measured"), tools), Hairline()
        self.picture = held(column(self.table, (self.charts, 1), self.on, spacing=12))  # what is saved as a picture
        measured = self.progress, self.note, self._rule, self._head, (self.picture, 1), self.facts, (self.empty, 1)
        self.setLayout(column(self.model, self.setup, foot, *measured, margins=(8, 8, 8, 12), spacing=8))
        order = self.begin, self.undo, self.up, self.menu_button, self.table, *self.charts.plots
        for one, other in pairwise(order):
            QWidget.setTabOrder(one, other)
        here = Qt.ShortcutContext.WidgetWithChildrenShortcut
        begin = QAction(tr("Measure, or cancel it"), self, shortcutContext=here)
        begin.setShortcuts([QKeySequence("Ctrl+Return"), QKeySequence("Ctrl+Enter")])
        begin.triggered.connect(self.begin.click)
        self.addAction(begin)

    def _connect(self) -> None:
        quality = self.quality
        self.setup.edited.connect(self._show_buttons)
        self.setup.original_asked.connect(self._ask_original)
        self.up.currentIndexChanged.connect(self._show_report)
        self.charts.chosen.connect(self._select)
        self.table.chosen.connect(self._select)
        self.menu.failed.connect(lambda words: self.note.say(words, "error"))
        self.menu.done.connect(lambda words: self.note.say(words, "note"))
        quality.subject_changed.connect(self._show_subject)
        quality.report_changed.connect(self._show_report)
        quality.phase_changed.connect(self._on_phase)
        quality.progressed.connect(self._on_progress)
        quality.told.connect(lambda words, level: self.note.say(sentence(words), level))
        self._session.state_changed.connect(self._on_session)
        theme.changes.theme_changed.connect(self._on_theme)

    # -- what others ask ------------------------------------------------------------------------------------------

    def show_model(self, spec: ModelSpec | None, why_not: str = "") -> None:
        """Puts this model on show, as soon as the panel is; what was measured of it is shown again. None: none, and
        `why_not` says what to do."""
        subject = self.quality.subject
        if subject is not None and subject.spec == spec and self._wanted is None:
            return
        self.note.say("")
        self._why_not = why_not or NO_MODEL_WORDS
        self._wanted = spec
        if spec is None:
            self.quality.forget()
        elif self.isVisible():
            self._look()

    def _look(self) -> None:
        spec, self._wanted = self._wanted, None
        if spec is not None and not self._session.closing:
            self.model.say(tr("{model}: reading its files …", model=model_words(spec.source)))
            self.model.show()
            self.quality.show(spec)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._look()

    # -- slots ----------------------------------------------------------------------------------------------------

    def _table(self) -> QualityTable | None:
        report = self.quality.report
        return QualityTable(report) if report is not None else None

    def _on_begin(self) -> None:
        if self.quality.running:
            self.quality.cancel()
        else:
            self.note.say("")
            self.quality.start(self.setup.plan())

    def _on_undo(self) -> None:
        if self.quality.report is not None:
            self.quality.clear()
        else:
            self.quality.undo()

    def _ask_original(self) -> None:
        title = tr("The model that this checkpoint was made of")
        ask_path(self, "original_dialog", title, "model/folder", self.choose_original)

    def choose_original(self, source: str) -> None:
        """What the AWQ checkpoint on show was made of: a folder or a hub id."""
        subject = self.quality.subject
        if subject is not None:
            self.quality.show(subject.spec, ModelSpec(source))

    def _show_subject(self) -> None:
        subject = self.quality.subject
        self.setup.setVisible(subject is not None)
        if subject is None:
            self.model.say("")
        else:
            self.setup.show_subject(subject)
            self.model.say(_subject_words(subject))
            if subject.problem:
                self.note.say(sentence(subject.problem), "error")
        self.model.setVisible(subject is not None and bool(subject.stored))
        self._on_phase()

    def _show_report(self) -> None:
        report, chosen = self.quality.report, self.charts.memory.selected
        for widget in (self.picture, self._rule, self._head, self.facts):
            widget.setVisible(report is not None)
        self.empty.setVisible(report is None)
        self._say_empty()
        self.charts.show_report(report, str(self.up.currentData()))
        self.table.show_report(report)
        self.facts.say(tr("Choose a row or a point: all of its facts are said here."))
        self.on.say(measured_words(report) if report is not None else "")
        if self.quality.running and 0 <= chosen < self.table.facts.rowCount():  # rows were added behind it
            self._select(chosen)
        self._show_buttons()

    def _say_empty(self) -> None:
        subject = self.quality.subject
        words = BUSY_WORDS if self.quality.running else EMPTY_WORDS
        if subject is None:
            words = self._why_not
        elif subject.problem or subject.original is None:
            words = ""  # that is said above
        self.empty.setText(words)

    def _show_buttons(self) -> None:
        quality = self.quality
        busy = quality.running
        refusal = "" if busy else quality.refusal(self.setup.plan())
        words, said = tr("Measure"), tr("Measure the comparison")
        if quality.ending and busy:
            words, said = tr("Cancelling …"), tr("Cancelling … the comparison")
        elif busy:
            words, said = tr("Cancel"), tr("Cancel the comparison")
        self.begin.setText(words)
        self.begin.setAccessibleName(said)
        set_role(self.begin, "" if busy else "primary")
        self.begin.setEnabled(not quality.ending and not refusal)
        self.begin.setVisible(quality.subject is not None or busy)
        self.begin.setToolTip(refusal or tr("Ctrl+Enter"))
        if not busy:
            words = self.setup.words(self._session.card is not None)
            if self._session.ready and self._session.busy:
                words = tr("{what}. Requests run on the Play page: speeds will be lower", what=words)
            problem = quality.subject is not None and quality.subject.problem
            self.status.say("" if problem else refusal or words)
        measured = quality.report is not None
        self.undo.setVisible(not busy and (measured or quality.can_undo))
        self.undo.setText(tr("Clear") if measured else tr("Undo clear"))
        clear, back = tr("Clear the comparison"), tr("Bring the cleared comparison back")
        self.undo.setAccessibleName(clear if measured else back)

    def _on_session(self) -> None:
        """Another model came or went, and with it what is free."""
        subject = self.quality.subject
        self._show_buttons()
        if subject is not None and self.isVisible() and not self._session.closing and not self.quality.running:
            self.quality.show(subject.spec, subject.original if subject.stored else None)

    def _on_phase(self) -> None:
        busy = self.quality.running
        self.setup.set_busy(busy)
        self.progress.setVisible(busy)
        self._say_empty()
        self._show_buttons()

    def _on_progress(self, words: str, share: float) -> None:
        subject, measured = self.quality.subject, self.quality.measured
        if measured is not None and subject is not None and measured.key != subject.key:
            words = f"{model_words(measured.spec.source)}  ·  {words}"
        self.status.say(words)
        self.progress.show_share(share or None)

    def _select(self, place: int) -> None:
        report = self.quality.report
        self.charts.select(place)
        self.table.select(place)
        if report is not None and place >= 0:
            self.facts.say(sentence(facts_words(rows_of(report)[place], report)))

    def _on_theme(self) -> None:
        self.charts.setMinimumHeight(theme.px(215))
        self.up.setFixedWidth(theme.px(150))
        self.empty.setMinimumHeight(theme.px(120))


def _subject_words(subject: Subject) -> str:
    """What a checkpoint that is quantized is compared with."""
    name, made = model_words(subject.spec.source), subject.original
    way = SCHEMES[subject.stored or "none"].title
    if made is None:
        return tr("{model}, made {way} of a model not known", model=name, way=way)
    of = model_words(made.source)
    if not subject.dtype:
        return tr("{model}, made {way} of {original} in its precision", model=name, way=way, original=of)
    dtype = subject.dtype
    return tr("{model}, made {way} of {original} in {dtype}", model=name, way=way, original=of, dtype=dtype)
