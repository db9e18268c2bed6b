"""Whether the chosen model fits: a row a quantization, and the rule of thumb beside the truth."""

from PySide6.QtCore import QSignalBlocker, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.language import tr
from app.models.fit.breakdown import ELSEWHERE, Bills, FitTable, bills, bound_words, room_words, rule_words
from app.models.fit.row import FitHead, FitRow
from app.models.items import Item
from app.session.memory.estimate import on_gpu
from app.session.session import LEASED_WORDS, Session, SessionState
from app.ui.controls import DropDown, PowerOfTwo, button
from app.ui.export import table_menu
from app.ui.forms.config_form import devices
from app.ui.labels import Note, label
from app.ui.layout.boxes import column, held, row
from app.ui.layout.flow import Flow
from app.ui.layout.zoomed import zoomed
from app.ui.line import Line
from app.ui.look import theme
from app.words import bytes_words, sentence
from engine import InvalidInput, ModelSpec
from engine.checkpoints import ModelInfo
from engine.config import DTYPES, QUANTIZATIONS
from engine.memory import Fit, datasheets

DTYPE = tr("automatic: as stored on a GPU; on a CPU float32, or bfloat16 when quantized")
REQUESTS = tr("How long each request gets, prompt and answer together")
ELSEWHERE_TIP = tr(
    "This machine's; below them, to see what would fit, GPUs that are not here, as their makers publish them"
)
LENGTH, LONGEST = 1024, 1_048_576


class _Told(Note):
    """Asks for the height that it needs at the width it has, where a label would guess a narrow one."""

    def sizeHint(self) -> QSize:
        return QSize(0, self.heightForWidth(max(self.width(), theme.px(200))))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.updateGeometry()


class FitPanel(QWidget):
    """Computes off the GUI thread what `show_model` names. `why_not` tells why nothing of it can be loaded."""

    load_asked = Signal(str, str, str)  # quantization, dtype, device
    make_asked = Signal()  # an AWQ checkpoint of the model
    computed = Signal(object)  # Bills
    told = Signal(str)
    failed = Signal(str)

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.setObjectName("fit_panel")
        self._session = session
        self._info: ModelInfo | None = None
        self._source: tuple[str, str | None] = ("", None)
        self._last: ModelSpec | None = None
        self._why_not, self._advise = "", True
        self._number = 0  # of what is computed; an older one's result is not wanted
        self.bills: Bills | None = None
        self.dtype = DropDown("fit_dtype", [(tr("automatic") if d == "auto" else d, d) for d in DTYPES])
        self.device = DropDown("fit_device", devices())
        self.device.insertSeparator(self.device.count())
        for sheet in datasheets():
            self.device.addItem(sheet.name, ELSEWHERE + sheet.name)
        self.length = PowerOfTwo("fit_length", 16, LONGEST, LENGTH, tr(" tokens"))
        self.export_button = button("fit_export", tr("Export"))
        self.export_menu = table_menu(self, self._table, "fit")
        self.export_button.setMenu(self.export_menu)
        self.room = Line("fit_room")
        self.warning = _Told("fit_warning", "warning")
        self.head = FitHead()
        self.rows = {name: FitRow(name) for name in QUANTIZATIONS}
        self.bound, self.rule, self.why = _Told("fit_bound"), _Told("fit_rule"), _Told("fit_why")
        self.table = held(column(self.head, *self.rows.values(), spacing=0))
        self.table.setObjectName("fit_table")
        self.table.setAccessibleName(tr("What fits"))
        self._again = QTimer(self, singleShot=True, interval=150)
        self._again.timeout.connect(self.compute)
        self._lay_out()
        self._connect()
        self._on_theme()

    def _lay_out(self) -> None:
        bar = QWidget()
        self._bar = Flow(bar, last_right=True)
        for words, control, tip in (
            (tr("Precision"), self.dtype, DTYPE),
            (tr("Device"), self.device, ELSEWHERE_TIP),
            (tr("Requests of"), self.length, REQUESTS),
        ):
            named = label(words, "secondary")
            named.setBuddy(control)
            control.setAccessibleName(words)
            pair = held(row(named, control, spacing=8))
            pair.setToolTip(tip)
            self._bar.addWidget(pair)
        self._bar.addWidget(self.export_button)
        room = zoomed(row(self.room), (8, 0, 8, 0))
        parts = bar, room, self.warning, self.table, self.bound, self.rule, self.why, None
        self.setLayout(zoomed(column(*parts), (0, 12, 0, 12), 8))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)

    def _connect(self) -> None:
        self.dtype.currentIndexChanged.connect(self.compute)
        self.device.currentIndexChanged.connect(self.compute)
        self.length.valueChanged.connect(self._show)
        for each in self.rows.values():
            each.load_asked.connect(lambda quantization: self.load_asked.emit(quantization, *self.chosen))
            each.make_asked.connect(self.make_asked)
            each.moved.connect(lambda by, row=each: self._on_moved(row, by))
        session = self._session
        session.state_changed.connect(lambda state: self._again.start())
        session.config_changed.connect(lambda config: self._again.start())
        self.export_menu.done.connect(self.told)
        self.export_menu.failed.connect(self.failed)
        theme.changes.theme_changed.connect(self._on_theme)

    # -- what is shown --------------------------------------------------------------------------------------------

    def show_model(
        self, info: ModelInfo | None, item: Item, revision: str | None, *, why_not: str = "", advise: bool = True
    ) -> None:
        """Shows a model's fit; its pickers begin with how it was loaded before. `advise`: something is recommended,
        even if it cannot be loaded at once."""
        source, last = (item.source, revision), item.settings
        if source != self._source:
            self.bills = None
            if last is not None:
                for box, value in ((self.dtype, last.dtype), (self.device, last.device)):
                    with QSignalBlocker(box):
                        box.set_value(value)
        self._info, self._source, self._last, self._why_not, self._advise = info, source, last, why_not, advise
        self.compute()

    @property
    def chosen(self) -> tuple[str, str]:
        """Precision and device, as in ModelSpec; of one that is not here "auto"."""
        return self.dtype.currentData(), "auto" if self._elsewhere else self._device

    @property
    def _device(self) -> str:
        return str(self.device.currentData())

    @property
    def _elsewhere(self) -> bool:
        return self._device.startswith(ELSEWHERE)

    @property
    def best(self) -> str:
        """What to load when a person names no quantization: as it was loaded last where that fits, else the
        recommended; "" where nothing can be."""
        if self.bills is None or self._why_not or self._elsewhere:
            return ""
        last = self.bills.fit(self._last.quantization) if self._last is not None else None
        return last.quantization if last is not None and last.fits and not last.available else self.bills.recommended

    def compute(self) -> None:
        """Looks at the memory anew."""
        self._again.stop()
        self._number += 1
        if self._info is None or self._session.closing:
            self._show()
        else:
            self._session.start(self._compute(self._info, self._number))

    async def _compute(self, info: ModelInfo, number: int) -> None:
        session, config, (dtype, _), device = self._session, self._session.config, self.chosen, self._device
        found, problem = None, ""
        try:
            found = await session.off_thread(
                lambda: bills(info, dtype, device, held_bytes(session, device), config.max_running, config.token_budget)
            )
        except (InvalidInput, OSError, ValueError) as error:
            problem = sentence(str(error))
        if number != self._number:
            return
        self.bills = found
        self._show()
        if found is not None:
            self.computed.emit(found)
        else:
            self.warning.say(problem)

    def _refusal(self) -> str:
        """Why nothing can be loaded now, whatever fits."""
        if self._elsewhere and not self._why_not:
            device = self.device.currentText()
            return tr("{device} is not here. To load the model, choose a device of this machine.", device=device)
        busy = {SessionState.LEASED: LEASED_WORDS, SessionState.LOADING: tr("Another model is loading.")}
        return busy.get(self._session.state, self._why_not)

    def _show(self) -> None:
        found = self.bills
        self.table.setVisible(found is not None)
        self.export_button.setEnabled(found is not None)
        self.room.say(room_words(found) if found is not None else "")
        if found is None:
            for note in (self.warning, self.bound, self.rule, self.why):
                note.say("")
            return
        length, why_not = self.length.value(), self._refusal()
        for name, each in self.rows.items():
            fit = found.fit(name)
            each.setVisible(fit is not None)
            if fit is not None:
                each.recommended = self._advise and name == found.recommended
                each.loaded, each.last = self._loaded(fit), self._last is not None and self._last.quantization == name
                each.show_fit(fit, found.room, length, why_not, offered=not self._why_not)
        self._warn(found)
        fit = found.fit(found.recommended) or found.fits[0]
        self.bound.say(bound_words(found, fit, length, self._session.config.max_running))
        for note, words in zip((self.rule, self.why), rule_words(found.info, fit.dtype, length, self._batch(fit))):
            note.say(words)

    def _batch(self, fit: Fit) -> int:
        """How many requests the rule of thumb is told for: as many as run at once."""
        return max(1, min(self._session.config.max_running, fit.requests(self.length.value())))

    def _warn(self, found: Bills) -> None:
        context, words = found.info.context, ""
        if not found.recommended and not self._why_not:
            least = min((f.weights + f.activations for f in found.fits if not f.available), default=0)
            if least:
                words = tr(
                    "Nothing fits: the smallest needs {needed}, {free} are free. Close what else uses the memory, or "
                    "choose a smaller model.",
                    needed=bytes_words(least),
                    free=bytes_words(found.room.free),
                )
        elif context and self.length.value() > context:
            words = tr("The model's context ends at {tokens:,} tokens: longer requests are cut.", tokens=context)
        self.warning.say(words)

    def _loaded(self, fit: Fit) -> bool:
        card, spec = self._session.card, self._session.spec
        if card is None or not self._session.ready or (spec.source, spec.revision) != self._source or self._elsewhere:
            return False
        names = {spec.quantization}
        if self._info is not None and self._info.quantized is not None:
            names |= {"none", card.quantization}  # two names for what such a checkpoint is loaded as
        return fit.quantization in names and fit.dtype == card.dtype

    def _table(self) -> FitTable | None:
        if self.bills is None:
            return None
        source, revision = self._source
        return FitTable(f"{source}@{revision}" if revision else source, self.bills, self.length.value())

    # -- slots ----------------------------------------------------------------------------------------------------

    def _on_moved(self, row: FitRow, by: int) -> None:
        shown = [each for each in self.rows.values() if each.isVisible()]
        at = shown.index(row) + by
        if 0 <= at < len(shown):
            shown[at].setFocus(Qt.FocusReason.TabFocusReason)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy) and self.bills is not None:
            self.export_menu.copy("Markdown")
        else:
            super().keyPressEvent(event)

    def _on_theme(self) -> None:
        self._bar.gap = theme.px(16)
        for indented in (self._bar, self.warning, self.bound, self.rule, self.why):
            indented.setContentsMargins(theme.px(8), 0, theme.px(8), 0)
        for box in (self.dtype, self.device, self.length):
            box.setFixedWidth(theme.px(124))


def held_bytes(session: Session, device: str) -> int:
    """What the loaded model would give back for the next one on a device; looks at the engine's process."""
    card, trace = session.card, session.trace
    if card is None or trace is None or not trace.records or card.device.startswith("cuda") != on_gpu(device):
        return 0
    header = trace.header
    own = card.weight_bytes + header.kv_memory
    pid = session.engine_pid
    if card.device.startswith("cuda") or pid is None:
        return own
    import psutil

    try:
        return min(own, int(psutil.Process(pid).memory_info().rss))  # pages that were never touched are free already
    except psutil.Error:
        return 0
