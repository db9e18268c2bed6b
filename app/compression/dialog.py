"""Compressing a prompt: what is struck out and why, what is left, what that buys, and how far the answer moves."""

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QPlainTextEdit, QWidget

from app.compression.answers import Answers
from app.compression.session import CompressionSession
from app.compression.struck_text import StruckText
from app.compression.words import bound_words, head, note_words, rows_of
from app.language import tr
from app.session.session import Session
from app.ui.controls import DropDown, SliderValue, button, line_edit
from app.ui.labels import Note, label
from app.ui.layout.boxes import Scrolled, column, fill, held, named, row
from app.ui.layout.flow import Flow
from app.ui.layout.zoomed import sized
from app.ui.line import Line
from app.ui.look import theme
from app.ui.progress import Progress
from app.ui.sheets.dialog import Dialog
from app.ui.tables.fact_table import LINE, FactTable
from app.ui.tables.facts import Facts
from engine import ModelSpec
from engine.compression import KEEPS, METHODS, UNITS, Compressed, Fields, Piece, parts_of
from engine.config import Prompt

INFORMATION, FIELDS = "information", "fields"
SIZE = (1120, 640)
LEAST_ANSWERS = 420  # pixels of the design that both answers take side by side
METHOD_TITLES = {INFORMATION: tr("strike out words"), "summary": tr("summary"), FIELDS: tr("fields")}
UNIT_TITLES = {"words": tr("words"), "sentences": tr("sentences"), "tokens": tr("tokens")}
KEEP_TITLES = {"instructions": tr("instructions"), "question": tr("question")}
METHOD, FIELD_NAMES, SCORED_BY, KEPT = tr("Method"), tr("Fields"), tr("Scored by"), tr("Kept whole")
WRITE = {"summary": tr("Write the summary"), FIELDS: tr("Fill in the fields")}
MEASURE_WORDS = tr(
    "Measure sends both prompts in turns: tokens, time to the first token, and how far the answer moves."
)


class CompressionDialog(Dialog):
    """Use `open()`. It scores the prompt at once; the slider then needs no model."""

    use_asked = Signal(object)  # Prompt

    def __init__(self, parent: QWidget, session: Session, prompt: Prompt) -> None:
        super().__init__(parent, "compression_dialog", tr("Compress a prompt"))
        self.work = CompressionSession(session, prompt)
        self._session, self._prompt, self._around = session, prompt, parent
        keeps = [
            (tr("instructions and question"), tuple(KEEPS)),
            *((KEEP_TITLES[name], (name,)) for name in KEEPS),
            (tr("nothing"), ()),
        ]
        self.method = DropDown("compression_method", [(METHOD_TITLES[key], key) for key in METHODS], METHOD)
        self.ratio = SliderValue("compression_ratio", tr("Share of tokens that stays"), 0.05, 1.0, 0.5, step=0.05)
        self.unit = DropDown(
            "compression_unit", [(UNIT_TITLES[unit], unit) for unit in UNITS], tr("What is struck out")
        )
        self.keep = DropDown("compression_keep", keeps, KEPT)
        self.scorer = DropDown("compression_scorer", self._scorers(), SCORED_BY)
        self.fields = line_edit("compression_fields", FIELD_NAMES, tr("who, where, what, or a JSON schema"))
        self.original = StruckText("compression_original", tr("The original, what goes struck through"))
        self.compressed = named(QPlainTextEdit(), "compression_compressed", said=tr("The compressed prompt"))
        self.tokens = Line("compression_tokens", size=12)
        self.legend = Note("compression_legend")
        self.table = FactTable("compression_table", tr("What the compression buys and costs"))
        self.answers = Answers("compression_answers")
        self.note = Note("compression_note")
        self.error = Note("compression_error", "error")
        self.status = Line("compression_status")
        self.progress = Progress("compression_progress", tr("How far the work is"))
        self.write = button("compression_write", "", self._on_write)
        self.measure = button("compression_measure", tr("Measure"), self._on_measure, tip=MEASURE_WORDS)
        self.use = button(
            "compression_use", tr("Use it"), self._on_use, role="primary", tip=tr("Puts it into the composer")
        )
        self.leave = button("compression_leave", tr("Close"), self._on_leave)
        self._pieces: tuple[Piece, ...] = ()
        self._lay_out()
        self._connect()
        self._on_theme()
        self._show_all()
        self._score()

    def _scorers(self) -> list[tuple[str, object]]:
        """The loaded model, and the draft that it has."""
        config, spec = self._session.config, self._session.spec
        draft = config.draft or (ModelSpec("demo-draft") if spec.source == "demo" else None)
        return [(tr("the loaded model"), None), *([(tr("its draft"), draft)] if draft is not None else [])]

    def _lay_out(self) -> None:
        self.compressed.setReadOnly(True)
        self.compressed.setTabChangesFocus(True)
        controls = Flow()
        self._labelled: dict[str, QWidget] = {}
        for name, text, control in (
            ("method", METHOD, self.method),
            ("ratio", tr("Keep"), sized(self.ratio, width=190)),
            ("unit", tr("Unit"), self.unit),
            ("scorer", SCORED_BY, self.scorer),
            ("fields", FIELD_NAMES, sized(self.fields, width=260)),
            ("keep", KEPT, self.keep),
        ):
            each = self._labelled[name] = held(row(label(text, "secondary"), control, spacing=6))
            controls.addWidget(each)
        for choice in (self.method, self.unit, self.scorer, self.keep):
            choice.setMinimumContentsLength(max(len(choice.itemText(i)) for i in range(choice.count())))
        for side in (self.original, self.compressed):
            sized(side, least_height=130)
        sized(self.answers, least_height=110)
        left = column(label(tr("Original"), "title"), (self.original, 1), spacing=4)
        right = column(
            row(label(tr("Compressed"), "title"), (self.tokens, 1), spacing=8), (self.compressed, 1), spacing=4
        )
        self._found = row(self.table, (self.answers, 1), spacing=12)
        self.effect = held(column(self._found, self.note, spacing=4))
        body = column(held(controls), (row((left, 1), (right, 1), spacing=12), 1), self.legend, self.effect, spacing=8)
        self.body = Scrolled(body, "compression_scroll", tr("compression"))
        self.body.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        buttons = self.write, self.measure, self.leave, self.use
        for each in buttons:
            each.setAutoDefault(False)
        self.column.setSpacing(8)
        foot = row((self.status, 1), *buttons, spacing=8)
        fill(self.column, (self.body, 1), self.error, self.progress, foot, margins=None)

    def _connect(self) -> None:
        self.method.currentIndexChanged.connect(self._on_method)
        self.ratio.value_changed.connect(self._on_ratio)
        for choice in (self.unit, self.scorer, self.keep):
            choice.currentIndexChanged.connect(self._score)
        self.fields.textChanged.connect(self.work.forget_written)
        self.work.changed.connect(self._show_all)
        self.work.progressed.connect(self._on_progress)
        self.work.told.connect(lambda words: self.error.say(words))
        theme.changes.theme_changed.connect(self._on_theme)
        self.finished.connect(self.work.close)

    # -- what there is --------------------------------------------------------------------------------------------

    @property
    def prompt(self) -> Prompt | None:
        """The compressed prompt; None while there is none."""
        if self.by_information:
            return self.work.scored.compressed(self.ratio.value()) if self.work.scored is not None else None
        written = self.work.written
        return written.prompt if written is not None and written.method == self.method.currentData() else None

    @property
    def by_information(self) -> bool:
        return bool(self.method.currentData() == INFORMATION)

    def _show_all(self) -> None:
        self._show_prompts()
        self._show_effect()
        self._show_buttons()

    def _show_prompts(self) -> None:
        scored, prompt = self.work.scored, self.prompt
        model = self._session.card.name if self._session.card is not None else tr("the model")
        if self.by_information and scored is not None:
            kept = scored.kept(self.ratio.value())
            self._show_pieces(scored.pieces, kept)
            left = sum(piece.tokens for piece, stays in zip(scored.pieces, kept) if stays)
            self.tokens.say(tr("~{left:,} of {all:,} tokens", left=left, all=scored.tokens))
            self.legend.say(_scored_words(scored.scored_by))
        else:
            pieces = self._unscored()
            self._show_pieces(pieces, tuple(piece.fixed or self.by_information for piece in pieces))
            written = self.work.written if prompt is not None else None
            self.tokens.say(_written_tokens(written) if written else "")
            self.legend.say("" if self.by_information else _written_words(model))
        words = _texts(prompt) if prompt is not None else ""
        if words != self.compressed.toPlainText():
            self.compressed.setPlainText(words)

    def _unscored(self) -> tuple[Piece, ...]:
        try:
            parts = parts_of(self._prompt, self.keep.currentData())
        except ValueError:  # which the session has told
            parts = parts_of(self._prompt, ())
        pieces = tuple(Piece(part.message, part.text, 0.0, 0, part.fixed) for part in parts)
        self._pieces = pieces if pieces != self._pieces else self._pieces  # the same ones are not written again
        return self._pieces

    def _show_pieces(self, pieces: tuple[Piece, ...], kept: tuple[bool, ...]) -> None:
        roles = [part["role"] for part in self._prompt if isinstance(part, dict)]
        self.original.show_pieces(pieces, kept, roles)

    def _show_effect(self) -> None:
        """Of another prompt than is shown now nothing was measured."""
        effect = self.work.effect if self.work.measured is not None and self.work.measured == self.prompt else None
        fresh = effect is not None and not self.effect.isVisibleTo(self)
        self.effect.setVisible(effect is not None)
        self.answers.show_effect(effect)
        if effect is not None:
            self.table.show_facts(Facts(head(), rows_of(effect)))
            self.note.say(f"{note_words(effect)} {bound_words()}.")
            self._fit_table()
        if fresh:
            QTimer.singleShot(0, self.effect, lambda: self.body.ensureWidgetVisible(self.effect))

    def _show_buttons(self) -> None:
        running, method = self.work.running, self.method.currentData()
        shown = {"ratio": method != FIELDS, "unit": self.by_information, "scorer": self.by_information}
        for name, is_shown in (shown | {"fields": method == FIELDS}).items():
            self._labelled[name].setVisible(is_shown)
        self.write.setVisible(not self.by_information)
        self.write.setText(WRITE.get(method, ""))
        there = self.prompt is not None
        self.write.setEnabled(not running)
        self.measure.setEnabled(there and not running)
        self.use.setEnabled(there and not running)
        self.leave.setText(tr("Cancel") if running else tr("Close"))
        self.progress.setVisible(running)
        if not running:
            self.status.say(MEASURE_WORDS if there and not self.effect.isVisible() else "")

    # -- what is asked --------------------------------------------------------------------------------------------

    def _score(self) -> None:
        self.work.forget_written()
        if self.by_information:
            self._begin(tr("Scoring the prompt …"))
            self.work.score(self.unit.currentData(), self.keep.currentData(), self.scorer.currentData())
        self._show_all()

    def _begin(self, words: str) -> None:
        self.status.say(words)
        self.progress.show_share(None)

    def _on_method(self) -> None:
        self.error.say("")
        if self.by_information and self.work.scored is None:
            self._score()
        self._show_all()

    def _on_ratio(self) -> None:
        if not self.by_information:
            self.work.forget_written()
        self._show_all()

    def _on_write(self) -> None:
        method, ratio, keep = self.method.currentData(), self.ratio.value(), self.keep.currentData()
        self._begin(tr("The model writes …"))
        self.work.write(method, ratio, keep, self._fields() if method == FIELDS else None)

    def _fields(self) -> Fields:
        """Names between commas, or a JSON schema."""
        text = self.fields.text().strip()
        return text if text.startswith("{") else [name.strip() for name in text.split(",")]

    def _on_measure(self) -> None:
        if self.prompt is not None:
            self._begin(tr("Answering …"))
            self.work.measure(self.prompt)

    def _on_use(self) -> None:
        if self.prompt is not None:
            self.use_asked.emit(self.prompt)
            self.accept()

    def _on_leave(self) -> None:
        if self.work.running:
            self.work.cancel()
        else:
            self.reject()

    def _on_progress(self, words: str, share: float) -> None:
        self.status.say(words)
        self.progress.show_share(share if share >= 0 else None)

    def _on_theme(self) -> None:
        self.compressed.setFont(theme.ui(13))
        self._fit_table()
        self.resize(QSize(*map(theme.px, SIZE)).boundedTo(self._around.window().size() * 0.96))

    def _fit_table(self) -> None:
        """Every row in sight: nothing of it scrolls."""
        rows = theme.px(LINE) * (len(self.table.facts_model.facts.rows) + 1) + theme.px(10)
        self.table.setMinimumHeight(rows)
        self.table.resizeColumnsToContents()
        self.table.setFixedWidth(self.table.horizontalHeader().length() + theme.px(4))
        self._turn()

    def _turn(self) -> None:
        """The answers beside the table, or below it where that leaves them too little room."""
        left = self.body.width() - self.table.width()
        ways = QBoxLayout.Direction
        self._found.setDirection(ways.LeftToRight if left > theme.px(LEAST_ANSWERS) else ways.TopToBottom)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._turn()


def _scored_words(model: str) -> str:
    return tr(
        "The stronger a word's ground, the more it says: bits a token under {model}. The fewest go first.", model=model
    )


def _written_words(model: str) -> str:
    return tr("What is struck through goes. {model} writes something in its place, as well as it can.", model=model)


def _written_tokens(written: Compressed) -> str:
    return tr("{left:,} of {all:,} tokens", left=written.tokens_after, all=written.tokens_before)


def _texts(prompt: Prompt) -> str:
    """A prompt's own words, message after message."""
    if isinstance(prompt, str):
        return prompt
    messages = [part for part in prompt if isinstance(part, dict)]
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"{message['role']}\n{message['content']}" for message in messages)
