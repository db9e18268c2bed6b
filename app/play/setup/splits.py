"""How the chosen model can be split over ranks, as the Devices of the model panel offer it; what each rank holds."""

from app.language import tr
from app.words import bytes_words
from engine import Parallel
from engine.memory import residual_bytes
from engine.trace import Header

SPLITS = (Parallel(), *(Parallel(n, sequence=shares) for shares in (False, True) for n in (2, 4, 8)))
SHARING = "sp"
SEQUENCE = tr("+ sequence: norms and residuals are computed by shares of a step's rows")


def split_key(parallel: Parallel) -> str:
    """What stands for it among the items: "2", "2:sp"."""
    return f"{parallel.tensor}:{SHARING}" if parallel.sequence else str(parallel.tensor)


def split_of(key: str) -> Parallel:
    ranks, _, sharing = key.partition(":")
    return Parallel(int(ranks), sequence=sharing == SHARING)


def split_title(parallel: Parallel) -> str:
    if parallel.sequence:
        return tr("{ranks} + sequence", ranks=parallel.tensor)
    return str(parallel.tensor)


def residual_words(header: Header) -> str:
    """What norms and residuals take on each rank of a split model at the largest step; "" for one device."""
    ranks, card, tokens = len(header.rank_devices), header.model, header.config.token_budget
    if ranks < 2:
        return ""
    item = 4 if card.dtype == "float32" else 2
    whole, share = (bytes_words(residual_bytes(tokens, card.hidden, item, n)) for n in (1, ranks))
    if header.sequence_parallel:
        return tr("Norms and residuals: {share} a rank; {whole} by tensor parallelism alone", share=share, whole=whole)
    return tr("Norms and residuals: {whole} a rank; {share} with sequence parallelism", share=share, whole=whole)
