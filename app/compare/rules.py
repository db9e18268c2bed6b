"""The rules of a race: what every lane gets alike, how often it is run, and what counts as good enough."""

from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.compare.choice import Limits, RaceChoice
from app.compare.words import ORDERS
from app.language import tr, trn
from app.ui.controls import Amount, DropDown, Number
from app.ui.forms.form import Field, Form
from app.ui.labels import Hairline, Heading, Note
from app.ui.layout.boxes import fill
from app.ui.layout.zoomed import sized
from app.ui.sheets.popover import Popover

KV = tr("Tokens of the first lane's model, K and V in its own precision; every lane gets as many bytes")
COUNT = tr("How many of the workload's prompts; more begin it again")
REPEATS = tr("How often each lane is run; the table shows the spread")
PRICE = tr(
    "Of this machine, or of what you would rent, in any currency: the result then says what a million tokens cost"
)
NO_PRICE = tr("not said")
LIMITS = (
    ("ttft", "TTFT", tr("Time to first token: first token − submit"), 50),
    ("tpot", "TPOT", tr("Time per output token: (last − first token) / (tokens − 1)"), 5),
    ("e2e", tr("E2E latency"), tr("Last token − submit"), 500),
)


def limit_field(name: str, text: str, tip: str, step: int) -> Field:
    """Shown in milliseconds, kept in seconds."""
    control = Number(f"race_slo_{name}", 0, 3_600_000, 0, " ms", step, least=tr("no limit"))
    tip = tr("{measure}. Requests above it do not count for goodput", measure=tip)
    return Field(name, text, control, tip, lambda ms: ms / 1000, lambda seconds: round(seconds * 1000))


class RaceRules(Popover):
    """Every change takes effect at once."""

    edited = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, "race_rules", tr("Rules of the race"), width=372)
        kv = Number("race_kv_tokens", 0, 1_073_741_824, 0, tr(" tokens"), 1024)
        self.kv = sized(kv, least_width=160)  # not that of the longest words it may say
        self.count = Number("race_count", 0, 100_000, 0)
        order = DropDown("race_order", [(title, order) for order, (title, _) in ORDERS.items()])
        self.form = Form(
            [
                Field("kv_tokens", tr("KV memory"), self.kv, KV),
                Field("count", tr("Prompts"), self.count, COUNT),
                Field("repeats", tr("Repeats"), Number("race_repeats", 1, 20, 1), REPEATS),
                Field("order", tr("Order"), order, tr("Which lane is run first")),
            ],
            self,
        )
        self.cost = Form(
            [Field("price", tr("An hour costs"), Amount("race_price", 10_000.0, least=NO_PRICE), PRICE)], self
        )
        self.limits = Form([limit_field(*limit) for limit in LIMITS], self)
        self.order_note = Note("race_order_note")
        alike, good = Heading(tr("Alike for every lane")), Heading(tr("Good enough (SLO)"))
        fill(self.column, alike, *self.form.rows.values(), self.order_note, 4, Hairline(), good, spacing=8)
        fill(self.column, *self.limits.rows.values(), 4, Hairline(), Heading(tr("Cost")), spacing=8)
        fill(self.column, *self.cost.rows.values())
        for form in (self.form, self.limits, self.cost):
            form.edited.connect(self._on_edited)

    def suggest(self, kv_tokens: int, count: int) -> None:
        """What the workload has, where nothing else is chosen."""
        kv = tr("{tokens:,} tokens, as suggested", tokens=kv_tokens) if kv_tokens else tr("as the workload suggests")
        self.kv.setSpecialValueText(kv)
        self.count.setSpecialValueText(tr("all {count:,}", count=count) if count else tr("all"))

    def show_choice(self, choice: RaceChoice) -> None:
        self.form.show(choice)
        self.limits.show(choice.limits)
        self.cost.show(choice)
        self._say_order()

    def applied(self, choice: RaceChoice) -> RaceChoice:
        """The choice under these rules."""
        return replace(choice, **self.form.values(), **self.cost.values(), limits=Limits(**self.limits.values()))

    def _on_edited(self) -> None:
        self._say_order()
        self.edited.emit()

    def _say_order(self) -> None:
        self.order_note.say(ORDERS[self.form["order"].get()][1])


def rules_words(choice: RaceChoice, kv_tokens: int) -> str:
    """ "20 prompts · 3 repeats · KV 8,192 tokens · SLO"."""
    parts = [trn("{count:,} prompt", "{count:,} prompts", choice.count)] if choice.count else []
    parts.append(tr("{count} repeats", count=choice.repeats) if choice.repeats > 1 else tr("1 run"))
    kv = choice.kv_tokens or kv_tokens
    if kv:
        parts.append(tr("KV {tokens:,} tokens", tokens=kv))
    if any((choice.limits.ttft, choice.limits.tpot, choice.limits.e2e)):
        parts.append("SLO")
    if choice.price:
        parts.append(tr("{price:,.2f} an hour", price=choice.price))
    return " · ".join(parts)
