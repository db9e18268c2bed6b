"""What a model would take of a memory, told from its files before it is loaded. No torch, no Qt; may block on disk."""

from dataclasses import dataclass
from functools import partial

from app.language import tr
from app.words import adapters_words, count_words, kv_words, sentence
from engine import EngineConfig, InvalidInput, ModelSpec
from engine.checkpoints import inspect_adapter, local_info
from engine.core import Card, cards, host_memory, nvidia_driver
from engine.memory import TAKEN, DeviceMemory, Fit, fits, rank_counts, why_unstaged, why_whole

RUNTIME = 600 << 20  # bytes that an engine's process takes besides weights and pool


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes of the weights beside the memory's free and total bytes, of a model split over GPUs on one of them; `facts`
    in words, a line each; `fit` the whole bill, None without a model; `bills` those of all quantizations; `context`
    that of the model in tokens, 0 where it does not say. `whole`: why the model cannot be split over ranks, "" where it
    can, over so many as `ranks`, with experts whole over so many as `whole_ranks`; `unstaged`: why its `layers` cannot
    be in several stages. `cards`: how many GPUs it can be split over; 0 on a CPU, and where that is not known.
    `runtime` as of DeviceMemory. `heads`: of queries, and those of keys and values that are stored; 0 where that is not
    known."""

    weights: int
    free: int
    total: int
    facts: tuple[str, ...]
    fit: Fit | None = None
    bills: tuple[Fit, ...] = ()
    context: int = 0
    whole: str = ""
    ranks: tuple[int, ...] = ()
    whole_ranks: tuple[int, ...] = ()
    unstaged: str = ""
    layers: int = 0
    experts: int = 0
    cards: int = 0
    runtime: int = 0
    heads: tuple[int, int] = (0, 0)

    @property
    def fits(self) -> bool:
        return self.fit is None or self.fit.fits


def on_gpu(device: str) -> bool:
    """Whether a model on this device lies in a GPU's memory."""
    return device.startswith("cuda") or (device == "auto" and nvidia_driver() and _card(device) is not None)


def room(device: str, runtime: int = TAKEN) -> DeviceMemory:
    """The memory that a model on this device would lie in, as it is now; the machine's where a GPU does not tell.
    `runtime`: what of a GPU's free bytes is for driver and libraries."""
    gpu = on_gpu(device)
    card = _card(device) if gpu else None
    if card is not None and (memory := card.memory()) is not None:
        free, total = memory
        runtime = min(runtime, free)
        return DeviceMemory("cuda", free - runtime, total, card.drives_display(), runtime)
    total, free = host_memory()
    return DeviceMemory("cuda" if gpu else "cpu", free, total)


def _card(device: str) -> Card | None:
    """The GPU that "auto" or "cuda:N" would take, where NVML knows it."""
    found = [card for card in cards() if device != "auto" or not card.too_old()]
    index = int(device.partition(":")[2] or 0)
    return found[index] if index < len(found) else None


def empty(device: str) -> Estimate:
    """The memory without a model."""
    memory = room(device, runtime=0)
    return Estimate(0, memory.free, memory.total, ())


def estimate(spec: ModelSpec, config: EngineConfig | None = None) -> Estimate:
    """Reads the headers of a model that is here, in the cache too. Raises InvalidInput where it is not."""
    info, memory, config = local_info(spec), room(spec.device), config or EngineConfig()
    slots, budget, gpu = config.slots, config.token_budget, memory.kind == "cuda"
    dividing, whole_experts = (tuple(rank_counts(info, spec.quantization, whole)) for whole in (False, True))
    ranks = (
        spec.parallel.ranks if gpu and spec.parallel.ranks in (*dividing, *whole_experts) else 1
    )  # on a CPU they have one memory
    adapters = [inspect_adapter(each) for each in spec.adapters]
    how = partial(fits, dtype=spec.dtype, kv_dtype=config.kv_dtype, ranks=ranks, adapters=adapters)
    bills = tuple(how(info, memory, max_running=slots, token_budget=budget))
    fit = next(bill for bill in bills if bill.quantization == spec.quantization)
    context = [tr("context {tokens:,}", tokens=info.context)] if info.context else []
    facts = (
        " · ".join((kv_words(config.kv_dtype, ranks * fit.kv_token, fit.states), *context)),
        tr("{count} parameters in {dtype}", count=count_words(info.parameters), dtype=fit.dtype),
        *((sentence(adapters_words(spec.adapter_names)),) if adapters else ()),
        *(sentence(words) for words in (fit.available, fit.note) if words),
    )
    whole, staged = why_whole(info, spec.quantization), why_unstaged(info)
    if spec.kv_heads != "auto":
        whole = staged = tr("A model whose KV heads are repeated is not split.")
    heads = info.heads, info.kv_heads_stored or info.kv_heads
    split = whole, dividing, whole_experts, staged, info.layers, info.layer_experts
    gpus = len(cards()) if gpu else 0, memory.runtime
    weights = fit.weights * (1 + (config.disaggregated and not gpu))  # a prefill worker holds them once more
    return Estimate(weights, memory.free, memory.total, facts, fit, bills, info.context, *split, *gpus, heads)


def needed_and_free(spec: ModelSpec) -> tuple[int, int]:
    """Bytes that `spec` takes, and that are free with everything that is loaded now. A model of which nothing is known
    before it is fetched takes its chance beside the one there is: 0."""
    try:
        found = estimate(spec)
    except (InvalidInput, OSError):
        return 0, empty(spec.device).free
    return found.weights + beside(found.runtime), found.free


def beside(runtime: int) -> int:
    """Bytes that an engine's process takes beside weights and pool of a memory whose `runtime` is left out already."""
    return 0 if runtime else RUNTIME
