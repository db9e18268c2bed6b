"""Over how many devices the chosen model can be split: what cannot be is greyed, and says why; what each rank holds."""

from PySide6.QtGui import QStandardItemModel

from app.language import tr
from app.session.memory.estimate import Estimate
from app.ui.controls import DropDown
from app.ui.forms.splits import ABOUT, split_of
from app.ui.labels import Row
from app.words import bytes_words, sentence
from engine import Parallel
from engine.memory import residual_bytes
from engine.trace import Header


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
    if 0 < found.cards < split.ranks:
        refused = found.unstaged if split.pipeline > 1 else found.whole
        return refused or tr("Each rank takes a GPU of its own; this machine has {cards}.", cards=found.cards)
    if split.pipeline > 1:
        few = tr("This model has {layers} layers, and a stage needs one.", layers=found.layers)
        return found.unstaged or (few if 0 < found.layers < split.pipeline else "")
    if split.experts and not found.whole:
        if not found.experts:
            return tr("This model has no experts to share out.")
        if found.experts % split.tensor:
            return tr(
                "{count} do not divide this model's {experts} experts.", count=split.tensor, experts=found.experts
            )
    odd = tr("{count} do not divide this model's heads or the columns of its MLPs.", count=split.tensor)
    counts = found.whole_ranks if split.experts else found.ranks
    return found.whole or (odd if counts and split.tensor not in counts else "")


def residual_words(header: Header) -> str:
    """What norms and residuals take on each rank of a split model at the largest step; "" for one device,
    and for stages, each of which has all of a step's."""
    ranks, card, tokens = header.split, header.model, header.most_tokens
    if ranks < 2 or header.rank_layers:
        return ""
    item = 4 if card.dtype == "float32" else 2
    whole, share = (bytes_words(residual_bytes(tokens, card.hidden, item, n)) for n in (1, ranks))
    if header.sequence_parallel:
        return tr("Norms and residuals: {share} a rank; {whole} by tensor parallelism alone", share=share, whole=whole)
    return tr("Norms and residuals: {whole} a rank; {share} with sequence parallelism", share=share, whole=whole)
