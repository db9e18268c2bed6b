"""The rules of a race: what every lane gets alike, how often it is run, and what counts as good enough."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.compare.choice import Limits, RaceChoice
from app.ui.controls import DropDown, Number
from app.ui.labels import Hairline, Heading, Note, Row
from app.ui.popover import Popover
from app.words import sentence
from engine.compare import RACE_ORDERS

MS = 1000


class RaceRules(Popover):
    """Every change takes effect at once."""

    edited = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, "race_rules", "Rules of the race", width=320)
        self._showing = False
        self.kv = Number("race_kv_tokens", 0, 1_073_741_824, 0, " tokens", 1024)
        self.count = Number("race_count", 0, 100_000, 0)
        self.repeats = Number("race_repeats", 1, 20, 1)
        self.order = DropDown("race_order", [(order, order) for order in RACE_ORDERS])
        self.order_note = Note("race_order_note")
        self.limits = {
            name: Number(f"race_slo_{name}", 0, 3_600_000, 0, " ms", step)
            for name, step in (("ttft", 50), ("tpot", 5), ("e2e", 500))
        }
        for number in self.limits.values():
            number.setSpecialValueText("no limit")
        self.column.addWidget(Heading("Alike for every lane"))
        self.column.addWidget(
            Row("KV memory", self.kv, "Tokens in the first lane's cache; every lane gets as many bytes")
        )
        self.column.addWidget(Row("Prompts", self.count, "How many of the workload's prompts; more begin it again"))
        self.column.addWidget(Row("Repeats", self.repeats, "How often each lane is run; the table shows the spread"))
        self.column.addWidget(Row("Order", self.order, "Which lane is run first"))
        self.column.addWidget(self.order_note)
        self.column.addSpacing(4)
        self.column.addWidget(Hairline())
        self.column.addWidget(Heading("Good enough (SLO)"))
        for name, text, tip in (
            ("ttft", "TTFT", "Time to first token: first token − submit"),
            ("tpot", "TPOT", "Time per output token: (last − first token) / (tokens − 1)"),
            ("e2e", "E2E latency", "Last token − submit"),
        ):
            self.column.addWidget(Row(text, self.limits[name], f"{tip}. Requests above it do not count for goodput"))
        for control in (self.kv, self.count, self.repeats, *self.limits.values()):
            control.valueChanged.connect(self._on_edited)
        self.order.currentIndexChanged.connect(self._on_edited)

    def suggest(self, kv_tokens: int, count: int) -> None:
        """What the workload has, where nothing else is chosen."""
        self.kv.setSpecialValueText(f"{kv_tokens:,} tokens, as suggested" if kv_tokens else "as the workload suggests")
        self.count.setSpecialValueText(f"all {count:,}" if count else "all")

    def show_choice(self, choice: RaceChoice) -> None:
        self._showing = True
        self.kv.setValue(choice.kv_tokens)
        self.count.setValue(choice.count)
        self.repeats.setValue(choice.repeats)
        self.order.setCurrentIndex(max(0, self.order.findData(choice.order)))
        for name, number in self.limits.items():
            number.setValue(round(getattr(choice.limits, name) * MS))
        self._showing = False
        self.order_note.say(sentence(RACE_ORDERS[self.order.currentData()]) + ".")

    def applied(self, choice: RaceChoice) -> RaceChoice:
        """The choice under these rules."""
        return replace(
            choice,
            kv_tokens=self.kv.value(),
            count=self.count.value(),
            repeats=self.repeats.value(),
            order=self.order.currentData(),
            limits=Limits(**{name: number.value() / MS for name, number in self.limits.items()}),
        )

    def _on_edited(self) -> None:
        self.order_note.say(sentence(RACE_ORDERS[self.order.currentData()]) + ".")
        if not self._showing:
            self.edited.emit()


def rules_words(choice: RaceChoice, kv_tokens: int) -> str:
    """ "3 repeats · KV 8,192 tokens · SLO"."""
    parts = [f"{choice.repeats} repeats" if choice.repeats > 1 else "1 run"]
    kv = choice.kv_tokens or kv_tokens
    if kv:
        parts.append(f"KV {kv:,} tokens")
    if any((choice.limits.ttft, choice.limits.tpot, choice.limits.e2e)):
        parts.append("SLO")
    return " · ".join(parts)
