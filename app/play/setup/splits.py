"""How the chosen model can be split over ranks, as the Devices of the model panel offer it; what each rank holds."""

from app.language import tr
from app.words import bytes_words
from engine import Parallel
from engine.memory import residual_bytes
from engine.trace import Header

MANY = (2, 4, 8)
SPLITS = (Parallel(), *(Parallel(n, sequence=shares) for shares in (False, True) for n in MANY))
SPLITS += tuple(Parallel(pipeline=n) for n in MANY)
SHARING, STAGED = "sp", "pp"
SEQUENCE = tr("+ sequence: norms and residuals are computed by shares of a step's rows")


def split_key(parallel: Parallel) -> str:
    """What stands for it among the items: "2", "2:sp", "2:pp", of eight micro-batches "2:pp:8"."""
    if parallel.pipeline > 1:
        micro = f":{parallel.micro_batches}" if parallel.micro_batches else ""
        return f"{parallel.pipeline}:{STAGED}{micro}"
    return f"{parallel.tensor}:{SHARING}" if parallel.sequence else str(parallel.tensor)


def split_of(key: str) -> Parallel:
    ranks, _, way = key.partition(":")
    way, _, micro = way.partition(":")
    if way == STAGED:
        return Parallel(pipeline=int(ranks), micro_batches=int(micro or 0))
    return Parallel(int(ranks), sequence=way == SHARING)


def split_title(parallel: Parallel) -> str:
    if parallel.sequence:
        return tr("{ranks} + sequence", ranks=parallel.tensor)
    if parallel.micro_batches:
        return tr("{ranks} as pipeline × {micro}", ranks=parallel.pipeline, micro=parallel.micro_batches)
    return tr("{ranks} as pipeline", ranks=parallel.pipeline) if parallel.pipeline > 1 else str(parallel.tensor)


def residual_words(header: Header) -> str:
    """What norms and residuals take on each rank of a split model at the largest step; "" for one device,
    and for stages, each of which has all of a step's."""
    ranks, card, tokens = len(header.rank_devices), header.model, header.most_tokens
    if ranks < 2 or header.rank_layers:
        return ""
    item = 4 if card.dtype == "float32" else 2
    whole, share = (bytes_words(residual_bytes(tokens, card.hidden, item, n)) for n in (1, ranks))
    if header.sequence_parallel:
        return tr("Norms and residuals: {share} a rank; {whole} by tensor parallelism alone", share=share, whole=whole)
    return tr("Norms and residuals: {whole} a rank; {share} with sequence parallelism", share=share, whole=whole)
