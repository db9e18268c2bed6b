"""How a model can be split over ranks, as a choice of devices offers it."""

from app.language import tr
from app.ui.controls import DropDown
from engine import Parallel

MANY = (2, 4, 8)
SPLITS = (Parallel(), *(Parallel(n, sequence=shares) for shares in (False, True) for n in MANY))
SPLITS += tuple(Parallel(n, experts=True) for n in MANY)
SPLITS += tuple(Parallel(pipeline=n) for n in MANY)
SHARING, MIXTURE, STAGED = "sp", "ep", "pp"
DEVICES = tr(
    "over how many ranks every layer is split, each a GPU of its own or a process on a CPU; or the layers, stage after "
    "stage of a pipeline; in the paged modes"
)
SEQUENCE = tr("+ sequence: norms and residuals are computed by shares of a step's rows")
EXPERTS = tr("+ experts: each has some of a mixture's experts whole, not a part of each")
ABOUT = f"{DEVICES}\n{SEQUENCE}\n{EXPERTS}"


def split_key(parallel: Parallel) -> str:
    """What stands for it among the items: "2", "2:sp", "2:ep", "2:pp", of eight micro-batches "2:pp:8"."""
    if parallel.pipeline > 1:
        micro = f":{parallel.micro_batches}" if parallel.micro_batches else ""
        return f"{parallel.pipeline}:{STAGED}{micro}"
    way = SHARING if parallel.sequence else MIXTURE if parallel.experts else ""
    return f"{parallel.tensor}:{way}" if way else str(parallel.tensor)


def split_of(key: str) -> Parallel:
    ranks, _, way = key.partition(":")
    way, _, micro = way.partition(":")
    if way == STAGED:
        return Parallel(pipeline=int(ranks), micro_batches=int(micro or 0))
    return Parallel(int(ranks), sequence=way == SHARING, experts=way == MIXTURE)


def split_title(parallel: Parallel) -> str:
    if parallel.sequence:
        return tr("{ranks} + sequence", ranks=parallel.tensor)
    if parallel.experts:
        return tr("{ranks} + experts", ranks=parallel.tensor)
    if parallel.micro_batches:
        return tr("{ranks} as pipeline × {micro}", ranks=parallel.pipeline, micro=parallel.micro_batches)
    return tr("{ranks} as pipeline", ranks=parallel.pipeline) if parallel.pipeline > 1 else str(parallel.tensor)


def split_items() -> list[tuple[str, object]]:
    """All of them, as choices of a list."""
    return [(split_title(split), split_key(split)) for split in SPLITS]


def show_split(box: DropDown, split: Parallel) -> None:
    """Chooses it in a list of them, where it stands from now on."""
    if box.findData(split_key(split)) < 0:
        box.addItem(split_title(split), split_key(split))
    box.set_value(split_key(split))
