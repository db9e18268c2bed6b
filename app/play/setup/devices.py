"""Over how many devices the chosen model can be split: what cannot be is greyed, and says why."""

from PySide6.QtGui import QStandardItemModel

from app.language import tr
from app.session.estimate import Estimate
from app.ui.controls import DropDown
from app.ui.labels import Row
from app.words import sentence

DEVICES = tr("over how many ranks every layer is split: processes on a CPU so far, in the paged modes")
SPLITS = (1, 2, 4, 8)


def offer_devices(box: DropDown, row: Row, found: Estimate | None) -> None:
    """`found` is what is known of the model; None: nothing, and all is offered. One device can always be gone back
    to."""
    why = found.whole if found is not None else ""
    model = box.model()
    assert isinstance(model, QStandardItemModel)
    for at in range(box.count()):
        ranks = int(box.itemData(at))
        divides = found is None or not found.ranks or ranks in found.ranks
        model.item(at).setEnabled(ranks == 1 or (divides and not why))
        odd = tr("{count} do not divide this model's heads or the columns of its MLPs.", count=ranks)
        model.item(at).setToolTip("" if ranks == 1 else sentence(why) if why else "" if divides else odd)
    box.setEnabled(not why or box.currentData() != 1)
    words = f"{DEVICES}\n{tr('Not here: {why}', why=why)}" if why else DEVICES
    row.setToolTip(words)
    box.setToolTip(words)
    box.setAccessibleDescription(words)
