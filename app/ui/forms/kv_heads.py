"""How many key and value heads a model is held with, as a choice offers it."""

from app.language import tr
from app.ui.controls import DropDown

ABOUT = tr(
    "With grouped-query attention several query heads share one key and value head. With one for each query head it is "
    "multi-head attention: the same answers, and more K and V to keep and to read. Likewise where all heads' keys and "
    "values are made of one latent"
)
OFFERED: tuple[int | str, ...] = ("auto", "all")


def kv_heads_title(kv_heads: int | str) -> str:
    match kv_heads:
        case "auto":
            return tr("as stored")
        case "all":
            return tr("all (multi-head)")
    return str(kv_heads)


def kv_heads_items() -> list[tuple[str, object]]:
    return [(kv_heads_title(each), each) for each in OFFERED]


def show_kv_heads(box: DropDown, kv_heads: int | str) -> None:
    """Chooses it in a list of them, where it stands from now on."""
    if box.findData(kv_heads) < 0:
        box.addItem(kv_heads_title(kv_heads), kv_heads)
    box.set_value(kv_heads)
