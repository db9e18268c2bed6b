"""The model panel: which model, in what precision, on which device; what it takes; load, unload, cancel."""

import contextlib
from functools import partial
from pathlib import Path

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QStandardItemModel
from PySide6.QtWidgets import QScrollArea, QWidget

from app import storage
from app.language import tr
from app.play.setup.devices import offer_devices, residual_words
from app.play.setup.kv_heads import offer_kv_heads
from app.play.setup.memory import ModelBill
from app.play.setup.server import ServerFields
from app.quality.words import scheme_words
from app.session.loading.progress import LoadStatus
from app.session.memory.device import captured_words
from app.session.memory.estimate import Estimate, empty, estimate
from app.session.session import Session, SessionState
from app.ui.controls import DropDown, button, line_edit
from app.ui.forms.adapters import ABOUT as ABOUT_ADAPTERS
from app.ui.forms.adapters import AdapterChoice
from app.ui.forms.config_form import devices
from app.ui.forms.form import Field, Form
from app.ui.forms.kv_heads import ABOUT as ABOUT_KV_HEADS
from app.ui.forms.kv_heads import kv_heads_items, show_kv_heads
from app.ui.forms.splits import ABOUT, show_split, split_items, split_key, split_of
from app.ui.labels import Heading, Note, Row, set_role
from app.ui.layout.boxes import column, held, row
from app.ui.progress import Progress
from app.ui.sheets.ask_path import ask_path
from app.words import SHIPPED, adapters_words, bytes_words, count_words, kv_words, model_words, sentence
from engine import InvalidInput, ModelSpec, Trace
from engine.config import DTYPES, SCHEMES
from engine.jobs import engine_missing
from engine.memory import Fit
from engine.remote import ServerAddress
from engine.trace import Header, ModelCard

FOLDER, HUB, SERVER = "folder", "hub", "server"
PRECISION = tr("automatic: as stored on a GPU; on a CPU float32, or bfloat16 with quantized weights")
ALL = tr("What is here and on the hub, what fits, and what each quantization costs in quality")
MISSING = {FOLDER: tr("Choose a model folder."), HUB: tr("Type a hub id, such as {id}.", id="Qwen/Qwen3-0.6B")}
CANCELLED = tr("The load was cancelled. Nothing of it is left in memory.")
HINTS = {
    FOLDER: (tr("Folder"), tr("a folder with config.json and safetensors")),
    HUB: (tr("Hub id"), tr("owner/name or owner/name@revision")),
}


class ModelPanel(QWidget):
    """Edits a `ModelSpec` and shows the loaded model. The session does the loading."""

    load_asked = Signal(object)  # ModelSpec
    connect_asked = Signal(object)  # ServerAddress
    models_asked = Signal()  # the page of all models is to come on show

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.setObjectName("model_panel")
        self._session = session
        self._header: Header | None = None
        self._found: Estimate | None = None  # of the chosen model, where something is known of it
        self._left: QWidget | None = None  # what had the focus when a load began
        self._sources = {FOLDER: "", HUB: ""}
        self._trusted = ""  # the source whose own code may run, as the command line said
        items = [(model_words(source), source) for source in SHIPPED]
        items += [(tr("folder …"), FOLDER), (tr("hub id …"), HUB), (tr("server …"), SERVER)]
        self.source = DropDown("model_source", items)
        self.path = line_edit("model_path")
        self.browse = button("model_browse", "…", self.choose_folder, said=tr("Choose a model folder"))
        self.quantization = DropDown("model_quantization", [(q.title, q.name) for q in SCHEMES.values()])
        self.device = DropDown("model_device", devices())
        dtype = DropDown("model_dtype", [(tr("automatic") if d == "auto" else d, d) for d in DTYPES])
        quantization = Field("quantization", tr("Quantization"), self.quantization)
        precision = Field("dtype", tr("Precision"), dtype, PRECISION)
        self.devices = DropDown("model_devices", split_items())
        split = Field("parallel", tr("Devices"), self.devices, ABOUT, split_of, split_key)
        places = Field("device", tr("Device"), self.device), split
        self.kv_heads = DropDown("model_kv_heads", kv_heads_items())
        heads = Field("kv_heads", tr("KV heads"), self.kv_heads, ABOUT_KV_HEADS)
        self.adapters = AdapterChoice("model_adapters")
        beside = Field("adapters", tr("Adapters"), self.adapters, ABOUT_ADAPTERS)
        self.form = Form([quantization, precision, heads, beside, *places], self)
        self.server = ServerFields()
        self.bill = ModelBill()
        self.facts = Note("model_facts")
        self.stage = Note("model_stage")
        self.progress = Progress("model_progress", tr("Loading"))
        self.error = Note("model_error", "error")
        self.load = button("model_load", tr("Load"), self._on_load)
        self.open = button("model_open", tr("Open folder…"), self.choose_folder)
        self.all = button("model_all", tr("All models …"), self.models_asked, role="quiet", tip=ALL)
        place = held(row((self.path, 1), self.browse, spacing=4))
        place.setFocusProxy(self.path)
        self.place = Row(tr("Folder"), place)
        rows = Row(tr("Source"), self.source), self.place, self.server, *self.form.rows.values()
        told = self.bill, self.facts, self.stage, self.progress, self.error
        buttons = row((self.load, 1), (self.open, 1), spacing=8)
        self.setLayout(
            column(Heading(tr("Model"), self.all), *rows, *told, buttons, margins=(12, 0, 12, 12), spacing=8)
        )
        self._debounce = QTimer(self, singleShot=True, interval=300)
        self._debounce.timeout.connect(self._inspect)
        self.source.currentIndexChanged.connect(self._on_source)
        self.path.textChanged.connect(self._on_edited)
        self.path.textEdited.connect(lambda: self.adapters.begin(False))
        self.path.returnPressed.connect(self._on_load)
        self.form.edited.connect(self._on_edited)
        self.server.edited.connect(self._on_edited)
        self.server.entered.connect(self._on_load)
        self.adapters.refused.connect(self._refuse_adapter)
        self.server.control_asked.connect(lambda take: session.start(session.take_control(take)))
        session.state_changed.connect(self._on_state)
        session.load_progressed.connect(self._on_progress)
        session.load_failed.connect(self._on_failed)
        session.model_loaded.connect(self._on_loaded)
        session.trace_changed.connect(self._on_trace)
        self._on_source()
        self._on_state(session.state)

    # -- what is chosen -------------------------------------------------------------------------------------------

    @property
    def serves(self) -> bool:
        """Whether a server is chosen."""
        return bool(self.source.currentData() == SERVER)

    def show_server(self, server: ServerAddress) -> None:
        """Shows this server as the chosen one."""
        self.server.show_address(server)
        self.source.set_value(SERVER)

    def spec(self) -> ModelSpec:
        """The model as chosen. Raises InvalidInput when the source is empty."""
        kind = self.source.currentData()
        source = kind if kind in SHIPPED else self.path.text().strip()
        if not source:
            raise InvalidInput(MISSING[kind])
        if kind == FOLDER:
            source = str(Path(source).expanduser())
        return ModelSpec(source, **self.form.values(), trust_remote_code=source.partition("@")[0] == self._trusted)

    def set_spec(self, spec: ModelSpec) -> None:
        """Shows this model as the chosen one."""
        local = spec.source.startswith(("/", "~", ".")) or Path(spec.source).is_dir()
        kind = spec.source if spec.source in SHIPPED else FOLDER if local else HUB
        shown = f"{spec.source}@{spec.revision}" if spec.revision else spec.source
        self._trusted = spec.source if spec.trust_remote_code else ""
        if kind not in SHIPPED:
            self._sources[kind] = shown
        self.source.set_value(kind)
        if kind not in SHIPPED:
            self.path.setText(shown)
        if self.device.findData(spec.device) < 0:
            self.device.addItem(spec.device, spec.device)
        show_split(self.devices, spec.parallel)
        show_kv_heads(self.kv_heads, spec.kv_heads)
        self.form.show(spec)
        self._on_edited()

    def say_link(self) -> None:
        """What this window may do at the server."""
        self.server.say(self._session.link)

    def choose_folder(self) -> None:
        """Asks for a model folder, then loads it."""
        ask_path(self, "folder_dialog", tr("Open a model folder"), "model/folder", self.open_folder)

    def open_folder(self, folder: str) -> None:
        storage.settings().setValue("model/folder", str(Path(folder).parent))
        try:
            spec = ModelSpec(folder, **self.form.values() | {"adapters": ()})
        except InvalidInput as error:
            self.error.say(sentence(str(error)))
        else:
            self.set_spec(spec)
            self._on_load()

    # -- slots ----------------------------------------------------------------------------------------------------

    def _refuse_adapter(self, why: str) -> None:
        self.error.say(why)
        self._bring_in_sight()

    def _bring_in_sight(self) -> None:
        """What went wrong is said where a person sees it: the panel may be higher than its room."""
        above: QWidget | None = self
        while above is not None and not isinstance(above, QScrollArea):
            above = above.parentWidget()
        if above is not None:
            QTimer.singleShot(0, self, partial(above.ensureWidgetVisible, self.error))

    def _on_source(self) -> None:
        kind = self.source.currentData()
        self.place.setVisible(kind in HINTS)
        self.browse.setVisible(kind == FOLDER)
        self.open.setVisible(not self.serves)
        self.server.setVisible(self.serves)
        self.adapters.begin(kind == "demo")
        for one in self.form.rows.values():
            one.setVisible(not self.serves)
        if kind in HINTS:
            words, hint = HINTS[kind]
            self.place.label.setText(words)
            self.path.setAccessibleName(words)
            self.path.setPlaceholderText(hint)
            self.path.setText(self._sources[kind])
        self._on_edited()

    def _on_edited(self) -> None:
        kind = self.source.currentData()
        if kind in HINTS:
            self._sources[kind] = self.path.text()
            self.path.setToolTip(self.path.text())
        self.error.say("")
        self._debounce.start()
        self._show_button()

    def _on_load(self) -> None:
        match self._session.state:
            case SessionState.LOADING:
                self._session.cancel_load()
                self.load.setEnabled(False)
                self.stage.say(tr("Cancelling …"))
            case SessionState.READY | SessionState.DIED if self._session.server is not None and not self._changed():
                self._session.start(self._session.unload())
            case SessionState.READY if not self._changed():
                self._session.start(self._session.unload())
            case _:
                try:
                    chosen = self.server.address() if self.serves else self.spec()
                except InvalidInput as error:
                    self.error.say(sentence(str(error)))
                else:
                    self.error.say("")
                    (self.connect_asked if self.serves else self.load_asked).emit(chosen)

    def _changed(self) -> bool:
        try:
            if self.serves or self._session.server is not None:
                return not self.serves or self.server.address() != self._session.server
            return self.spec() != self._session.spec
        except InvalidInput:
            return True

    def _show_button(self) -> None:
        words, said, role, state = tr("Load"), tr("Load model"), "primary", self._session.state
        if self.serves:
            words, said = tr("Connect"), tr("Connect to the server")
        if state is SessionState.LOADING:
            words, said, role = tr("Cancel"), tr("Cancel model"), ""
        elif state is SessionState.READY and not self._changed():
            words, said, role = tr("Unload"), tr("Unload model"), ""
            if self.serves:
                words, said = tr("Disconnect"), tr("Disconnect from the server")
        set_role(self.load, role)
        self.load.setText(words)
        self.load.setAccessibleName(said)

    def _on_state(self, state: SessionState) -> None:
        loading = state is SessionState.LOADING
        chosen = (field.control for field in self.form.fields.values())
        choosing = self.source, self.path, self.browse, self.open, self.server, *chosen
        focused = self.window().focusWidget()
        if loading and focused is not None and any(w is focused or w.isAncestorOf(focused) for w in choosing):
            self._left = focused
            self.load.setFocus()  # where Cancel is; else Qt gives it to whatever comes next in the window
        for widget in choosing:
            widget.setEnabled(not loading)
        self.load.setEnabled(not engine_missing() or self.serves)
        self.progress.setVisible(loading)
        begins = tr("Connecting …") if self.serves else tr("Starting the engine …")
        self.stage.say(begins if loading else "")
        if loading:
            self.error.say("")
            self.progress.show_share(None)
        trace = self._session.trace
        self._header = trace.header if state is SessionState.READY and trace is not None else None
        if not loading:
            self._offer()
        self._debounce.start()
        self._show_button()

    def _on_progress(self, status: LoadStatus) -> None:
        words = status.words
        self.progress.show_share(status.done, status.total)
        if status.remaining is not None:
            words = tr("{stage} · about {seconds} s left", stage=words, seconds=max(1, round(status.remaining)))
        self.stage.say(words)

    def _on_failed(self, message: str) -> None:
        self.error.say(sentence(message) or ("" if self.serves else CANCELLED), "error" if message else "note")
        if message:
            self._bring_in_sight()
        if self._left is not None and self.window().focusWidget() is self.load:
            self._left.setFocus()  # to mend what was typed
        self._left = None

    def _on_loaded(self, card: ModelCard) -> None:
        self._left = None
        if (server := self._session.server) is not None:
            self.show_server(server)
            self.say_link()
        else:
            self.set_spec(self._session.spec)
        self._debounce.stop()
        self._show_button()

    def _on_trace(self, trace: Trace) -> None:
        if not trace.records:
            return  # of a server's next run, nothing is known yet
        self._header = trace.header
        self._debounce.stop()
        self.bill.show()
        self.facts.show()
        self._show_memory(self._header)

    # -- memory ---------------------------------------------------------------------------------------------------

    def _show_memory(self, header: Header) -> None:
        card = header.model
        self.bill.show_loaded(header)
        kv = kv_words(card.kv_dtype, card.kv_token_bytes, card.state_bytes)
        kv = tr("{kv} · context {tokens:,}", kv=kv, tokens=card.context) if card.context else kv
        parameters = count_words(card.parameters)
        loaded = (
            tr("{count} parameters", count=parameters)
            if self._session.server is not None
            else tr(
                "{parameters} parameters · loaded in {seconds:.1f} s",
                parameters=parameters,
                seconds=self._session.load_seconds,
            )
        )
        beside = ""
        if card.adapters:
            beside = f"{sentence(adapters_words(card.adapters))} · {bytes_words(card.adapter_bytes)}"
        words = kv, captured_words(header), residual_words(header), beside, loaded
        self.facts.say("\n".join(filter(None, words)))

    def _offer(self) -> None:
        """Over how many devices it can be split, and with how many heads it can be held."""
        offer_devices(self.devices, self.form.rows["parallel"], self._found)
        offer_kv_heads(self.kv_heads, self.form.rows["kv_heads"], self._found, self.devices.currentIndex() > 0)

    def _mark(self, bills: tuple[Fit, ...]) -> None:
        """Says of each quantization what it is and takes; those that this model cannot have are greyed, with why."""
        known = {bill.quantization: bill for bill in bills}
        model = self.quantization.model()
        assert isinstance(model, QStandardItemModel)
        for at, scheme in enumerate(SCHEMES.values()):
            bill, words = known.get(scheme.name), sentence(scheme_words(scheme.name))
            why = bill.available if bill is not None else tr("this model has no experts") if known else ""
            if why:
                words += f"\n{tr('Not here: {why}', why=why)}"
            elif bill is not None and bill.fits:
                words += f"\n{tr('Weights {bytes}, fits', bytes=bytes_words(bill.weights))}"
            elif bill is not None:
                words += f"\n{tr('Weights {bytes}, does not fit', bytes=bytes_words(bill.weights))}"
            model.item(at).setToolTip(words)
            model.item(at).setEnabled(not why)

    def _inspect(self) -> None:
        if self._session.closing:
            return
        connected = self._header is not None and not self._changed()
        if self.serves:
            self.server.say(self._session.link if connected else None)
            self.bill.setVisible(connected)
            self.facts.setVisible(connected)
            self._mark(())
        if self._header is not None and connected:
            self._show_memory(self._header)
        if self.serves:
            return
        self.bill.show()
        self.facts.show()
        spec = None
        if self.source.currentData() != HUB:
            with contextlib.suppress(InvalidInput):
                spec = self.spec()
        self._session.start(self._estimate(spec))

    async def _estimate(self, spec: ModelSpec | None) -> None:
        """Shows what the model would take, or the memory alone when that cannot be known."""
        device, config = self.device.currentData(), self._session.config
        found = await self._session.off_thread(lambda: empty(device))
        try:
            if spec is not None:
                found = await self._session.off_thread(lambda: estimate(spec, config))
        except (InvalidInput, OSError) as error:
            if self.source.currentData() != HUB:
                self.error.say(sentence(str(error)))
        self._mark(found.bills)
        self._found = found if found.fit is not None else None
        if self._session.state is not SessionState.LOADING:
            self._offer()
        if self._header is None or self._changed():
            self.bill.show_estimate(found, config)
            self.facts.say("\n".join(found.facts))
