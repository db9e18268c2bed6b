"""What is to be measured: the quantizations ticked, the text, how many of its tokens, and what that takes of memory."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.language import tr, trn
from app.quality.session import Plan
from app.quality.subject import Subject, Way
from app.ui.controls import Number, button
from app.ui.forms.text_choice import TextChoice
from app.ui.labels import label
from app.ui.layout.boxes import column
from app.ui.layout.flow import Flow
from app.ui.look import theme
from app.ui.look.tick_box import TickBox
from app.words import bytes_words, sentence
from engine.quality import suited_text

TOKENS = 2048
MAKE = tr("Quantizes the model to 4 bit with calibration, into a folder of its own")
CHOOSE = tr("Choose the original …")


class QualitySetup(QWidget):
    """Edits a `Plan` for the model on show."""

    edited = Signal()
    original_asked = Signal()
    awq_asked = Signal()  # an AWQ checkpoint is to be made

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("quality_setup")
        self._subject: Subject | None = None
        self._ticked: dict[tuple[str, str | None], dict[str, bool]] = defaultdict(dict)  # by model: what a person did
        self._showing = False
        self.boxes: dict[str, TickBox] = {}
        self._flow = Flow()
        self._flow.gap = theme.px(8)
        self.text = TextChoice("quality_text")
        self.text.setAccessibleName(tr("Text to measure on"))
        self.tokens = Number("quality_tokens", 128, 1_048_576, TOKENS, tr(" tokens"), 512)
        self.tokens.setAccessibleName(tr("Tokens to measure"))
        self.tokens.setToolTip(tr("How many tokens of the text are predicted: more take longer and vary less"))
        self.original = button("quality_original", CHOOSE, self.original_asked)
        self.make = button("quality_make_awq", tr("Make an AWQ checkpoint …"), self.awq_asked, role="quiet", tip=MAKE)
        what = Flow(last_right=True)
        for widget in (label(tr("Text"), "secondary"), self.text, self.tokens, self.original, self.make):
            what.addWidget(widget)
        self.setLayout(column(self._flow, what, spacing=8))
        self.text.text_changed.connect(self._on_edited)
        self.tokens.valueChanged.connect(self._on_edited)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()
        self.original.hide()

    def plan(self) -> Plan:
        ways = tuple(key for key, box in self.boxes.items() if box.isEnabled() and box.isChecked())
        return Plan(ways, self.text.text(), self.tokens.value())

    def show_subject(self, subject: Subject) -> None:
        """Its ways as tick boxes; those that cannot be measured say why."""
        self._showing = True
        fresh = self._subject is None or (self._subject.key, self._subject.original) != (subject.key, subject.original)
        self._subject = subject
        if [*self.boxes] != [way.key for way in subject.ways]:
            self._make_boxes(subject.ways)
        ticked = self._ticked[subject.key]
        for way in subject.ways:
            box = self.boxes[way.key]
            box.setEnabled(not way.reason)
            box.setChecked(not way.reason and ticked.get(way.key, not way.asked))
            tip = f"{sentence(way.sentence)}.\n{sentence(way.reason)}".strip()
            box.setToolTip(tip)
            box.setAccessibleDescription(tip)
        if fresh:
            self.text.choose(suited_text((subject.original or subject.spec).source))
        self.original.setVisible(bool(subject.stored))
        self.original.setText(CHOOSE if subject.original is None else tr("Another original …"))
        self.make.setVisible(not subject.stored and subject.original is not None)
        self._showing = False

    def set_busy(self, busy: bool) -> None:
        """Nothing can be edited while it is measured."""
        for way in self._subject.ways if self._subject is not None else ():
            self.boxes[way.key].setEnabled(not (busy or way.reason))
        for control in (self.text, self.tokens, self.original):
            control.setEnabled(not busy)

    def _make_boxes(self, ways: Sequence[Way]) -> None:
        for old in self.boxes.values():
            self._flow.removeWidget(old)
            old.hide()
            old.deleteLater()
        self.boxes = {way.key: TickBox(f"quality_way_{way.key}", way.title) for way in ways}
        for key, box in self.boxes.items():
            self._flow.addWidget(box)
            box.toggled.connect(lambda on, key=key: self._on_ticked(key, on))
        order: list[QWidget] = [*self.boxes.values(), self.text, self.tokens, self.original, self.make]
        for one, other in pairwise(order):
            QWidget.setTabOrder(one, other)

    def _on_ticked(self, key: str, on: bool) -> None:
        if not self._showing and self._subject is not None:
            self._ticked[self._subject.key][key] = on
        self._on_edited()

    def _on_edited(self) -> None:
        if not self._showing:
            self.edited.emit()

    def words(self, beside: bool) -> str:
        """What will be done, and what it takes; `beside`: while a model is loaded."""
        subject, ways = self._subject, self.plan().ways
        if subject is None:
            return ""
        if beside:
            what = trn(
                "{count:,} way and the original, one at a time beside the loaded model",
                "{count:,} ways and the original, one at a time beside the loaded model",
                len(ways),
            )
        else:
            what = trn(
                "{count:,} way and the original, one at a time",
                "{count:,} ways and the original, one at a time",
                len(ways),
            )
        need, free = bytes_words(subject.need(ways)), bytes_words(subject.free)
        return tr("{what}: ~{need} of {free} free", what=what, need=need, free=free)

    def _on_theme(self) -> None:
        self.text.setMinimumWidth(theme.px(160))
        self.tokens.setFixedWidth(theme.px(132))
