"""Over how many devices the chosen model can be split: what cannot be is greyed, and says why."""

from PySide6.QtGui import QStandardItemModel

from app.language import tr
from app.play.setup.splits import SEQUENCE, split_of
from app.session.estimate import Estimate
from app.ui.controls import DropDown
from app.ui.labels import Row
from app.words import sentence
from engine import Parallel

DEVICES = tr(
    "over how many ranks every layer is split, each a GPU of its own or a process on a CPU; or the layers, stage after "
    "stage of a pipeline, on a CPU so far; in the paged modes"
)
ABOUT = f"{DEVICES}\n{SEQUENCE}"


def offer_devices(box: DropDown, row: Row, found: Estimate | None) -> None:
    """`found` is what is known of the model; None: nothing, and all is offered. One device can always be gone back
    to."""
    model = box.model()
    assert isinstance(model, QStandardItemModel)
    reasons = [_why_not(split_of(box.itemData(at)), found) for at in range(box.count())]
    for at, why in enumerate(reasons):
        model.item(at).setEnabled(not why)
        model.item(at).setToolTip(sentence(why))
    none = all(reasons[1:])
    box.setEnabled(not none or box.currentIndex() != 0)
    words = f"{ABOUT}\n{tr('Not here: {why}', why=reasons[-1])}" if none else ABOUT
    row.setToolTip(words)
    box.setToolTip(words)
    box.setAccessibleDescription(words)


def _why_not(split: Parallel, found: Estimate | None) -> str:
    if split.ranks == 1 or found is None:
        return ""
    if split.pipeline > 1:
        few = tr("This model has {layers} layers, and a stage needs one.", layers=found.layers)
        return found.unstaged or (few if 0 < found.layers < split.pipeline else "")
    if 0 < found.cards < split.tensor:
        return found.whole or tr("Each rank takes a GPU of its own; this machine has {cards}.", cards=found.cards)
    odd = tr("{count} do not divide this model's heads or the columns of its MLPs.", count=split.tensor)
    return found.whole or (odd if found.ranks and split.tensor not in found.ranks else "")
