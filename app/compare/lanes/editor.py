"""The sheet that edits one lane: mode and its settings, model, place among the lanes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLineEdit, QPushButton, QWidget

from app import storage
from app.compare.choice import LaneChoice
from app.ui.config_form import ConfigForm
from app.ui.controls import DropDown
from app.ui.labels import Heading, Note, Row
from app.ui.popover import Popover
from engine import InvalidInput, ModelSpec
from engine.config import SCHEMES

PLAYS, DEMO, FOLDER = "play", "demo", "folder"


class LaneEditor(Popover):
    """Every change takes effect at once."""

    edited = Signal(object)  # LaneChoice
    moved = Signal(int)  # by so many places
    removed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, "lane_editor", "Lane", width=320)
        self._host = parent
        self._choice: LaneChoice | None = None
        self._showing = False
        self.form = ConfigForm("lane")
        self.model = DropDown(
            "lane_model", [("as on the Play page", PLAYS), ("demo stories", DEMO), ("folder or hub id …", FOLDER)]
        )
        self.path = QLineEdit()
        self.path.setObjectName("lane_path")
        self.path.setAccessibleName("Model folder or hub id")
        self.path.setPlaceholderText("a folder, or owner/name")
        self.browse = QPushButton("…")
        self.browse.setObjectName("lane_browse")
        self.browse.setAccessibleName("Choose a model folder")
        self.quantization = DropDown("lane_quantization")
        self._offer_quantizations(PLAYS)
        self.note = Note("lane_note", "error")
        self.back, self.on, self.remove = QPushButton("◂"), QPushButton("▸"), QPushButton("Remove")
        for button, name, words in (
            (self.back, "lane_back", "Play this lane earlier"),
            (self.on, "lane_on", "Play this lane later"),
            (self.remove, "lane_remove", "Remove this lane"),
        ):
            button.setObjectName(name)
            button.setAccessibleName(words)
            button.setToolTip(words)
        self._lay_out()
        self.form.edited.connect(self._on_edited)
        self.model.currentIndexChanged.connect(self._on_model)
        self.quantization.currentIndexChanged.connect(self._on_edited)
        self.path.editingFinished.connect(self._on_edited)
        self.browse.clicked.connect(self._on_browse)
        self.back.clicked.connect(lambda: self.moved.emit(-1))
        self.on.clicked.connect(lambda: self.moved.emit(1))
        self.remove.clicked.connect(self.removed)

    def _lay_out(self) -> None:
        self.column.addWidget(Heading("Lane"))
        self.column.addWidget(self.form)
        self.column.addWidget(Row("Model", self.model))
        place = QWidget()
        inner = QHBoxLayout(place)
        inner.setContentsMargins(0, 0, 0, 0)
        inner.setSpacing(4)
        inner.addWidget(self.path, 1)
        inner.addWidget(self.browse)
        place.setFocusProxy(self.path)
        self._place = Row("Folder", place)
        self.column.addWidget(self._place)
        self.column.addWidget(Row("Quantization", self.quantization))
        self.column.addWidget(self.note)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        for button in (self.back, self.on):
            buttons.addWidget(button)
        buttons.addStretch(1)
        buttons.addWidget(self.remove)
        self.column.addLayout(buttons)

    def show_lane(self, choice: LaneChoice, *, first: bool, last: bool) -> None:
        """Shows a lane; `first` and `last` say where it stands among the others."""
        self._choice, self._showing = choice, True
        spec = choice.lane.spec
        self.form.set_config(choice.lane.config)
        kind = PLAYS if not choice.own_model else DEMO if spec.source == "demo" else FOLDER
        self.model.setCurrentIndex(self.model.findData(kind))
        if kind == FOLDER:
            self.path.setText(spec.source)
        self._offer_quantizations(kind)
        own = choice.own_model or choice.own_quantization
        self.quantization.setCurrentIndex(max(0, self.quantization.findData(spec.quantization if own else PLAYS)))
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
        source = self.path.text().strip() if kind == FOLDER else "demo"
        if kind == FOLDER and source.startswith(("~", "/", ".")):
            source = str(Path(source).expanduser().absolute())
        if not source:
            raise InvalidInput("Name a model: a folder, or a hub id such as Qwen/Qwen3-0.6B.")
        quantization = self.quantization.currentData()
        own = kind == PLAYS and quantization != PLAYS
        spec = ModelSpec() if quantization == PLAYS else ModelSpec(source, quantization)
        return LaneChoice(replace(before, config=self.form.config(before.config), spec=spec), kind != PLAYS, own)

    def _offer_quantizations(self, kind: str) -> None:
        """All of them; for the Play page's model first that which it has there."""
        chosen = self.quantization.currentData()
        self.quantization.clear()
        if kind == PLAYS:
            self.quantization.addItem("as on the Play page", PLAYS)
        for scheme in SCHEMES.values():
            self.quantization.addItem(scheme.title, scheme.name)
            self.quantization.setItemData(self.quantization.count() - 1, scheme.sentence, Qt.ItemDataRole.ToolTipRole)
        self.quantization.setCurrentIndex(max(0, self.quantization.findData(chosen)))

    def _show_rows(self) -> None:
        own = self.model.currentData()
        self._place.setVisible(own == FOLDER)
        if self.isVisible():
            self.fit()

    def _on_model(self) -> None:
        if self._showing:
            return
        self._showing = True
        self._offer_quantizations(self.model.currentData())
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

    def _on_browse(self) -> None:
        start = str(storage.settings().value("model/folder", ""))
        dialog = QFileDialog(self._host.window(), "Choose a model folder", start)
        dialog.setObjectName("lane_folder_dialog")
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self._on_folder)
        dialog.open()

    def _on_folder(self, folder: str) -> None:
        storage.settings().setValue("model/folder", str(Path(folder).parent))
        self.path.setText(folder)
        self._on_edited()
