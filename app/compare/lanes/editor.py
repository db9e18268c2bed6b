"""The sheet that edits one lane: mode and its settings, model, place among the lanes."""

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QWidget

from app import storage
from app.compare.choice import LaneChoice
from app.language import tr
from app.ui.controls import DropDown, Number, button, line_edit
from app.ui.forms.config_form import ConfigForm
from app.ui.forms.kv_heads import ABOUT as ABOUT_KV_HEADS
from app.ui.forms.kv_heads import kv_heads_items, show_kv_heads
from app.ui.forms.splits import ABOUT, show_split, split_items, split_of
from app.ui.labels import Heading, Note, Row
from app.ui.layout.boxes import fill, held, row
from app.ui.sheets.ask_path import ask_path
from app.ui.sheets.popover import Popover
from engine import InvalidInput, ModelSpec, Parallel
from engine.compare import Server
from engine.config import MOST_SAMPLES, SCHEMES

PLAYS, DEMO, FOLDER, SERVER = "play", "demo", "folder", "server"
AS_PLAYS = tr("as on the Play page")
MODELS = ((AS_PLAYS, PLAYS), (tr("demo stories"), DEMO), (tr("folder or hub id …"), FOLDER), (tr("server …"), SERVER))
KEY_TIP = tr("The environment variable that holds the server's key: the key itself is never kept")


class LaneEditor(Popover):
    """Every change takes effect at once."""

    edited = Signal(object)  # LaneChoice
    moved = Signal(int)  # by so many places
    removed = Signal()
    escaped = Signal()  # it was closed by Esc

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, "lane_editor", tr("Lane"), width=320)
        self._host = parent
        self._choice: LaneChoice | None = None
        self._showing = False
        self.adapted = False  # whether requests go through adapters that a lane's model has by itself
        self.form = ConfigForm("lane", spacing=4)
        self.model = DropDown("lane_model", MODELS)
        self.path = line_edit("lane_path", tr("Model folder or hub id"), tr("a folder, or owner/name"))
        self.browse = button("lane_browse", "…", self._on_browse, said=tr("Choose a model folder"))
        self.quantization = DropDown("lane_quantization")
        self.devices = DropDown("lane_devices")
        self.kv_heads = DropDown("lane_kv_heads")
        self._offer(PLAYS)
        self.note = Note("lane_note", "error")
        self.back, self.on, self.remove = (
            button(f"lane_{name}", text, said=words, tip=words)
            for name, text, words in (
                ("back", "◂", tr("Play this lane earlier")),
                ("on", "▸", tr("Play this lane later")),
                ("remove", tr("Remove"), tr("Remove this lane")),
            )
        )
        place = held(row((self.path, 1), self.browse, spacing=4))
        place.setFocusProxy(self.path)
        self._place = Row(tr("Folder"), place)
        self.beams = Number("lane_beams", 1, MOST_SAMPLES, 1, least=tr("off"))
        tip = tr("Every request is a beam search of so many; nothing is drawn then")
        self._search = Row(tr("Beams"), self.beams, tip)
        self._quantized = Row(tr("Quantization"), self.quantization)
        self._split = Row(tr("Devices"), self.devices, ABOUT)
        self._heads = Row(tr("KV heads"), self.kv_heads, ABOUT_KV_HEADS)
        said = tr("Address of an OpenAI-compatible server"), tr("Name of its model"), tr("Variable of its key")
        self.url = line_edit("lane_url", said[0], "http://127.0.0.1:8000")
        self.there = line_edit("lane_there", said[1], tr("the only one it has"))
        self.key = line_edit("lane_key", said[2], tr("none"))
        self._server = (
            Row(tr("Address"), self.url),
            Row(tr("Its model"), self.there),
            Row(tr("Key in"), self.key, KEY_TIP),
        )
        own = self._quantized, self._heads, self._split
        rows = self._search, Row(tr("Model"), self.model), self._place, *own
        buttons = row(self.back, self.on, None, self.remove, spacing=8)
        fill(self.column, Heading(tr("Lane")), self.form, *rows, *self._server, self.note, buttons, spacing=6)
        self.form.edited.connect(self._on_edited)
        self.beams.valueChanged.connect(self._on_edited)
        self.model.currentIndexChanged.connect(self._on_model)
        for chosen in (self.quantization, self.devices, self.kv_heads):
            chosen.currentIndexChanged.connect(self._on_edited)
        for line in (self.path, self.url, self.there, self.key):
            line.editingFinished.connect(self._on_edited)
        self.back.clicked.connect(lambda: self.moved.emit(-1))
        self.on.clicked.connect(lambda: self.moved.emit(1))
        self.remove.clicked.connect(self.removed)

    def show_lane(self, choice: LaneChoice, *, first: bool, last: bool) -> None:
        """Shows a lane; `first` and `last` say where it stands among the others."""
        self._choice, self._showing = choice, True
        spec = choice.lane.spec
        self.form.set_config(choice.lane.config)
        self.form.offer_adapters(self.adapted or bool(spec.adapters))
        self.beams.setValue(choice.lane.beams)
        kind = PLAYS if not choice.own_model else DEMO if spec.source == "demo" else FOLDER
        server = choice.lane.server
        if server is not None:
            kind = SERVER
            for line, text in ((self.url, server.url), (self.there, server.model), (self.key, server.key)):
                line.setText(text)
        self.model.set_value(kind)
        if kind == FOLDER:
            self.path.setText(spec.source)
        self._offer(kind)
        own = choice.own_model or choice.own_quantization
        self.quantization.set_value(spec.quantization if own else PLAYS)
        if choice.own_model or choice.own_split:
            show_split(self.devices, spec.parallel)
        else:
            self.devices.set_value(PLAYS)
        if choice.own_model or choice.own_kv_heads:
            show_kv_heads(self.kv_heads, spec.kv_heads)
        else:
            self.kv_heads.set_value(PLAYS)
        self.back.setEnabled(not first)
        self.on.setEnabled(not last)
        self.remove.setEnabled(not (first and last))
        self.note.say("")
        self._showing = False
        self._show_rows()

    def choice(self) -> LaneChoice:
        """The lane as it stands. Raises InvalidInput."""
        assert self._choice is not None
        kind, before = self.model.currentData(), self._choice.lane
        if kind == SERVER:
            url, there, key = (line.text().strip() for line in (self.url, self.there, self.key))
            if not url:
                raise InvalidInput(tr("Give the server's address, such as http://127.0.0.1:8000."))
            return LaneChoice(replace(before, server=Server(url, there, key), beams=1), own_model=True)
        source = self.path.text().strip() if kind == FOLDER else "demo"
        if kind == FOLDER and source.startswith(("~", "/", ".")):
            source = str(Path(source).expanduser().absolute())
        if not source:
            raise InvalidInput(tr("Name a model: a folder, or a hub id such as Qwen/Qwen3-0.6B."))
        quantization, split = self.quantization.currentData(), self.devices.currentData()
        heads, own = self.kv_heads.currentData(), kind == PLAYS
        spec = before.spec if before.spec.source == source and not own else ModelSpec(source)
        if quantization != PLAYS:
            spec = replace(spec, quantization=quantization)
        config = self.form.config(before.config)
        parallel = Parallel() if split == PLAYS else split_of(split)
        spec = replace(spec, parallel=parallel, kv_heads="auto" if heads == PLAYS else heads)
        if own and self._choice.own_adapters:
            spec = replace(spec, adapters=before.spec.adapters)
        beams = self.beams.value() if config.paged else 1
        lane = replace(before, config=config, spec=spec, beams=beams, server=None)
        own_quantization, own_split, own_heads = (own and chosen != PLAYS for chosen in (quantization, split, heads))
        return LaneChoice(lane, not own, own_quantization, own_split, own_heads, self._choice.own_adapters)

    def _offer(self, kind: str) -> None:
        """All quantizations, splits and numbers of heads; for the Play page's model first those which it has there."""
        boxes = self.quantization, self.devices, self.kv_heads
        chosen = [box.currentData() for box in boxes]
        for box in boxes:
            box.clear()
            if kind == PLAYS:
                box.addItem(AS_PLAYS, PLAYS)
        for scheme in SCHEMES.values():
            self.quantization.addItem(scheme.title, scheme.name)
            self.quantization.setItemData(self.quantization.count() - 1, scheme.sentence, Qt.ItemDataRole.ToolTipRole)
        for title, key in split_items():
            self.devices.addItem(title, key)
        for title, count in kv_heads_items():
            self.kv_heads.addItem(title, count)
        for box, before in zip(boxes, chosen):
            box.set_value(before)

    def _show_rows(self) -> None:
        kind = self.model.currentData()
        self._place.setVisible(kind == FOLDER)
        paged = self._choice is not None and self._choice.lane.config.paged
        self._search.setVisible(paged and kind != SERVER)
        for widget in (self.form, self._quantized, self._heads, self._split):
            widget.setVisible(kind != SERVER)
        for line in self._server:
            line.setVisible(kind == SERVER)
        if self.isVisible():
            self.fit()

    def _on_model(self) -> None:
        if self._showing:
            return
        self._showing = True
        self._offer(self.model.currentData())
        self._showing = False
        self._on_edited()

    def _on_edited(self) -> None:
        if self._showing or self._choice is None:
            return
        try:
            self._choice = self.choice()
        except InvalidInput as error:
            self.note.say(str(error))
        else:
            self.note.say("")
            self.edited.emit(self._choice)
        self._show_rows()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        super().keyPressEvent(event)
        if event.key() == Qt.Key.Key_Escape:
            self.hide()
            self.escaped.emit()

    def _on_browse(self) -> None:
        ask_path(self._host, "lane_folder_dialog", tr("Choose a model folder"), "model/folder", self._on_folder)

    def _on_folder(self, folder: str) -> None:
        storage.settings().setValue("model/folder", str(Path(folder).parent))
        self.path.setText(folder)
        self._on_edited()
