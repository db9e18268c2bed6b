"""Making an AWQ checkpoint: of which model, calibrated with what, into which folder; how far it is, what to do next."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from PySide6.QtCore import QTimer, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QLayout, QWidget

from app import storage
from app.language import tr
from app.quality.recipe_check import GROUPS, RecipeCheck, checked, suggested_folder
from app.session.loading.progress import LoadStatus
from app.session.long_work import LongWork, Outcome
from app.session.session import Session
from app.ui.controls import DropDown, Number, button, line_edit
from app.ui.forms.text_choice import TextChoice
from app.ui.labels import Note, Row
from app.ui.layout.boxes import fill, held, row
from app.ui.line import Line
from app.ui.look import theme
from app.ui.progress import Progress
from app.ui.sheets.ask_path import ask_path
from app.ui.sheets.dialog import Dialog
from app.words import bytes_words, left_words, model_words, sentence
from engine import ModelSpec, quantize_to_awq
from engine.checkpoints import cached_models, shipped_models
from engine.quality import AwqRecipe, suited_calibration

ABOUT = tr(
    "4-bit weights, a scale every few inputs, chosen by running a text through the model. The checkpoint loads here "
    "and in other engines."
)
LENGTH = tr("Tokens of a sample that are used at most, and of a block that is run at once")
STILL = tr("The checkpoint is still being made. Closing stops it, and nothing of it is kept.")
LETTERS = 4  # of a text a token, roughly
DEBOUNCE_MS = 300
FOLDER = "folder"  # the last entry of the models


class QuantizeDialog(Dialog):
    """Use `open()`. Closing it while it works asks first, then stops the work."""

    load_asked = Signal(object)  # ModelSpec of the checkpoint
    made = Signal(object)  # its folder

    def __init__(self, parent: QWidget, session: Session, spec: ModelSpec | None = None) -> None:
        super().__init__(parent, "quantize_dialog", tr("Make an AWQ checkpoint"))
        self._session = session
        self.work = LongWork(session, self)
        self._made: Path | None = None
        self._wants_to_close = False
        self._gone = False  # closed: Qt deletes it while what it asked for may still be under way
        self._own_group = False  # whether a person chose it
        self._found = RecipeCheck()
        self._asked = 0  # looks begun: only what the last one says counts
        self._settled = False
        self._layers_begun = 0.0
        shipped = [(e.source, e.revision) for e in shipped_models() if not e.source.endswith("awq")]
        models = [(model_words(source), (source, revision)) for source, revision in shipped]
        self.model = DropDown("quantize_model", [*models, (tr("a folder …"), FOLDER)])
        self.calibration = TextChoice("quantize_calibration")
        self.calibration_facts = Note("quantize_calibration_facts")
        self.group = DropDown("quantize_group", [(tr("{count} inputs share a scale", count=g), g) for g in GROUPS])
        self.samples = Number("quantize_samples", 1, 100_000, 128, "", 16)
        self.length = Number("quantize_length", 16, 131_072, 512, tr(" tokens"), 64)
        self.out = line_edit("quantize_out", tr("Folder of the checkpoint"))
        self.browse = button("quantize_browse", "…", self._ask_out, said=tr("Choose where the folder is made"))
        self.bill = Note("quantize_bill")
        self.error = Note("quantize_error", "error")
        self.status = Line("quantize_status")
        self.progress = Progress("quantize_progress", tr("Layers that are quantized"))
        self.question = Note("quantize_question", "warning")
        self.load = button("quantize_load", tr("Load it"), self._on_load, role="primary")
        self.show_folder = button("quantize_show", tr("Show folder"), self._on_show)
        self.stop = button("quantize_stop", tr("Stop and close"), self._on_stop)
        self.leave = button("quantize_leave", tr("Close"), self._on_leave)
        self.begin = button("quantize_begin", tr("Make it"), self._on_begin, role="primary")
        self._lay_out()
        self._debounce = QTimer(self, singleShot=True, interval=DEBOUNCE_MS)
        self._debounce.timeout.connect(self._check)
        self._connect()
        self.choose(spec or ModelSpec("demo"))
        self._on_theme()
        self._show_buttons()
        session.start(self._fill_cached())

    def _lay_out(self) -> None:
        about = Note("quantize_about")
        about.say(ABOUT)
        place = held(row((self.out, 1), self.browse, spacing=4))
        place.setFocusProxy(self.out)
        self.column.setSpacing(8)
        self.column.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)  # else as high as the narrowest words
        self.column.addWidget(about)
        for text, control, tip in (
            (tr("Model"), self.model, tr("The model as it was trained: the demo, one of the cache, or a folder")),
            (tr("Calibration"), self.calibration, tr("What is run through the model to see which inputs matter most")),
            (tr("Group"), self.group, tr("Fewer inputs a scale: closer to the original, and a little larger")),
            (tr("Samples"), self.samples, tr("Paragraphs of the text that are used at most")),
            (tr("Length"), self.length, LENGTH),
            (tr("Folder"), place, tr("Where the checkpoint is written: a folder that is not there yet, or is empty")),
        ):
            self.column.addWidget(Row(text, control, tip))
            if control is self.calibration:
                self.column.addWidget(self.calibration_facts)
        buttons = self.load, self.show_folder, self.stop, self.leave, self.begin
        for each in buttons:
            each.setAutoDefault(False)
        told = self.bill, self.error, self.status, self.progress, self.question
        fill(self.column, *told, 4, None, row(*buttons[:2], None, *buttons[2:], spacing=8), margins=None)

    def _connect(self) -> None:
        self.model.activated.connect(self._on_model)
        self.calibration.text_changed.connect(self._on_edited)
        self.group.activated.connect(self._on_group)
        self.samples.valueChanged.connect(self._on_edited)
        self.length.valueChanged.connect(self._on_edited)
        self.out.textChanged.connect(self._on_edited)
        self.work.progressed.connect(self._on_progress)
        self.work.ended.connect(self._on_ended)
        theme.changes.theme_changed.connect(self._on_theme)

    # -- what is chosen -------------------------------------------------------------------------------------------

    def choose(self, spec: ModelSpec) -> None:
        """Takes this model, with what suits it."""
        self._last = self._offer(model_words(spec.source), (spec.source, spec.revision))
        self.model.setCurrentIndex(self._last)
        self.model.setToolTip(spec.source)
        self.calibration.choose(suited_calibration(spec.source))
        self._own_group = False
        if not self.out.isModified():
            self.out.setText(str(suggested_folder(spec.source)))
        self._on_edited()

    def recipe(self) -> AwqRecipe:
        source, revision = self.model.currentData()
        out = Path(self.out.text().strip() or ".").expanduser()
        sizes = int(self.group.currentData()), self.samples.value(), self.length.value()
        return AwqRecipe(source, self.calibration.text(), out, revision, *sizes)

    def _offer(self, name: str, source: tuple[str, str | None]) -> int:
        """The place of a model in the list; it comes before the last entry where it was not there."""
        last = self.model.count() - 1
        at = next((i for i in range(last) if self.model.itemData(i) == source), last)
        if at == last:
            self.model.insertItem(at, name, source)
        return at

    async def _fill_cached(self) -> None:
        """The models of the cache, which takes a moment to read."""
        entries = await self._session.off_thread(cached_models)
        if self._gone:
            return
        for entry in entries:
            if not entry.problem:
                self._offer(entry.name, (entry.source, entry.revision))

    def _on_model(self, index: int) -> None:
        if self.model.itemData(index) == FOLDER:
            self.model.setCurrentIndex(self._last)
            self._ask_folder(tr("Choose a model folder"), "model/folder", lambda folder: self.choose(ModelSpec(folder)))
        else:
            source, revision = self.model.itemData(index)
            self.choose(ModelSpec(source, revision=revision))

    def _ask_out(self) -> None:
        def take(folder: str) -> None:
            self.out.setText(str(Path(folder) / suggested_folder(self.model.currentData()[0]).name))
            self.out.setModified(True)

        self._ask_folder(tr("Choose where the checkpoint's folder is made"), "model/awq_folder", take)

    def _ask_folder(self, title: str, key: str, take: Callable[[str], None]) -> None:
        def taken(folder: str) -> None:
            take(folder)
            storage.settings().setValue(key, str(Path(folder).parent))

        ask_path(self, "quantize_folder_dialog", title, key, taken)

    def _on_group(self) -> None:
        self._own_group = True
        self._on_edited()

    def _on_edited(self) -> None:
        self._made = None
        self._settled = False
        if self.error.property("role") == "note":  # of one that was made, or cancelled
            self.error.say("")
        self._debounce.start()
        self._show_buttons()

    # -- what it will take ----------------------------------------------------------------------------------------

    def _check(self) -> None:
        if not self._gone and not self._session.closing and not self.work.running:
            self._asked += 1
            self._session.start(self._looked(self.recipe(), self._asked))

    async def _looked(self, recipe: AwqRecipe, asked: int) -> None:
        found = await self._session.off_thread(lambda: checked(recipe))
        if self._gone or asked != self._asked or self.work.running:
            return
        if found.group and found.group != recipe.group and not self._own_group:
            self._own_group = True  # suits this model; whoever changes it knows why
            self.group.setCurrentIndex(self.group.findData(found.group))
            self._check()
            return
        self._found, self._settled = found, not self._debounce.isActive()
        self._say_check(recipe)
        self._show_buttons()

    def _say_check(self, recipe: AwqRecipe) -> None:
        found, facts, bill = self._found, "", ""
        if found.letters:
            tokens = found.letters // LETTERS
            used = min(tokens, recipe.samples * recipe.length)
            facts = tr("{letters:,} characters, ~{tokens:,} tokens", letters=found.letters, tokens=tokens)
            if used != tokens:
                facts = tr("{text}, at most {used:,} of them are used", text=facts, used=used)
        if found.size:
            bill = tr(
                "~{size} on disk, where the original takes {original}. "
                "How long it takes is told after the first layer.",
                size=bytes_words(found.size),
                original=bytes_words(found.original),
            )
        self.calibration_facts.say(facts)
        self.bill.say(bill)
        if self._made is None:
            self.error.say(sentence(found.error), "error")

    # -- the making -----------------------------------------------------------------------------------------------

    def _on_begin(self) -> None:
        recipe = self.recipe()
        self.error.say("")
        self._layers_begun = 0.0
        self.progress.show_share(None)
        self.status.say(tr("Starting …"))
        self.work.start(lambda report, cancelled: quantize_to_awq(recipe, report, cancelled))
        self._show_buttons()

    def _on_progress(self, status: LoadStatus) -> None:
        words = sentence(status.stage)
        if status.total > 0:
            now = perf_counter()
            self._layers_begun = self._layers_begun or now
            if 0 < status.done < status.total:
                left = (now - self._layers_begun) * (status.total - status.done) / status.done
                words = tr("{stage}  ·  ~{time} left", stage=words, time=left_words(left))
        self.progress.show_share(status.done, status.total)
        self.status.say(words)

    def _on_ended(self, outcome: Outcome) -> None:
        self.question.say("")
        if self._wants_to_close:
            self.done(0)
            return
        if outcome.cancelled:
            self.error.say(tr("Cancelled. Nothing of it is left on disk."), "note")
        elif outcome.error:
            self.error.say(sentence(outcome.error), "error")
        else:
            self._made = Path(outcome.result)
            size = sum(path.stat().st_size for path in self._made.glob("*.safetensors"))
            words = tr("Made: {path}, {bytes} of weights.", path=self._made, bytes=bytes_words(size))
            self.error.say(words, "note")
            self.made.emit(self._made)
        self._show_buttons()

    def _show_buttons(self) -> None:
        running, made = self.work.running, self._made is not None
        asks = running and bool(self.question.text()) and not self.work.ending
        for each in (self.model, self.calibration, self.group, self.samples, self.length, self.out, self.browse):
            each.setEnabled(not running)
        for told in (self.progress, self.status):
            told.setVisible(running)
        for offered in (self.load, self.show_folder):
            offered.setVisible(made and not running)
        self.stop.setVisible(asks)
        self.begin.setVisible(not running and not made)
        self.begin.setEnabled(self._settled and not self._found.error)
        words = tr("Stopping …") if self.work.ending else tr("Go on") if asks else tr("Cancel")
        self.leave.setText(words if running else tr("Close"))
        self.leave.setEnabled(not self.work.ending)
        self._fit()

    def _fit(self) -> None:
        """As high as what is shown in it now."""
        self.column.activate()
        width = max(self.width(), self.minimumWidth())
        self.resize(width, self.column.heightForWidth(width))

    def _on_leave(self) -> None:
        """Cancels what runs; else closes."""
        if not self.work.running:
            self.reject()
            return
        if self.question.text():
            self.question.say("")
        else:
            self.work.cancel()
        self._show_buttons()

    def _on_stop(self) -> None:
        self._wants_to_close = True
        self.work.cancel()
        self.question.say(tr("Stopping …"))
        self._show_buttons()

    def _on_load(self) -> None:
        if self._made is not None:
            self.load_asked.emit(ModelSpec(str(self._made)))
            self.accept()

    def _on_show(self) -> None:
        if self._made is not None:
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._made)))

    # -- closing --------------------------------------------------------------------------------------------------

    def reject(self) -> None:
        """Esc and the window's cross: what runs is not thrown away without a word."""
        if not self.work.running or self._session.closing:
            super().reject()
        elif not self.work.ending:
            self.question.say(STILL)
            self._show_buttons()
            self.stop.setFocus()

    def done(self, result: int) -> None:
        self._gone = True
        self._debounce.stop()
        super().done(result)

    def _on_theme(self) -> None:
        self.setMinimumWidth(theme.px(560))
        self.calibration_facts.setIndent(theme.px(92) + 6)  # under its control
        self._fit()
