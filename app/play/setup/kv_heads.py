"""How many key and value heads the chosen model can be held with: where it cannot choose, why."""

from app.language import tr
from app.session.memory.estimate import Estimate
from app.ui.controls import DropDown
from app.ui.forms.kv_heads import ABOUT
from app.ui.labels import Row


def offer_kv_heads(box: DropDown, row: Row, found: Estimate | None, split: bool) -> None:
    """`found` is what is known of the model; None: nothing, and all is offered. `split`: it is over several devices.
    What it has can always be gone back to."""
    heads, stored = found.heads if found is not None else (0, 0)
    why = ""
    if split:
        why = tr("a model that is split has the heads that are stored")
    elif heads == stored > 0:
        why = tr("each of this model's {heads} query heads has its own", heads=heads)
    words = ABOUT
    if why:
        words += "\n" + tr("Not here: {why}", why=why)
    elif stored:
        words += "\n" + tr("Here {heads} query heads share {stored}.", heads=heads, stored=stored)
    box.setEnabled(not why or box.currentIndex() != 0)
    for widget in (row, box):
        widget.setToolTip(words)
    box.setAccessibleDescription(words)
