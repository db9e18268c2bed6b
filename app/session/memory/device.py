"""Where the device's bytes go, part by part, how long requests may be, and which decode steps were captured: the
figures and their words. No Qt in here."""

import re
from dataclasses import asdict, dataclass, replace

from app.language import tr, trn
from app.words import bytes_words
from engine.trace import Header, Telemetry

LONG_STEP = re.compile(r"a step of ([\d.]+) s gains nothing by it")  # as the engine says it
LENGTHS = (512, 2048, 8192)  # tokens of a request that people ask of, beside the model's context


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a bill: `kind` as `plot.patterns` paints it, its name in the bill and bytes."""

    kind: str
    name: str
    count: int

    @property
    def title(self) -> str:
        """Its name for people."""
        return title_of(self.name)

    @property
    def about(self) -> str:
        return about(self.name)


@dataclass(frozen=True, slots=True)
class RankBill:
    """What a rank of a split model has of its weights and of the KV pool, in bytes."""

    weights: int
    kv_pool: int

    @property
    def own(self) -> int:
        return self.weights + self.kv_pool

    @property
    def words(self) -> str:
        return tr(
            "weights {weights}, KV pool {pool}", weights=bytes_words(self.weights), pool=bytes_words(self.kv_pool)
        )


@dataclass(frozen=True, slots=True)
class DeviceBill:
    """Bytes that add up to `total`; where `total` is 0 only weights and pool are known. `source` says whence they are.

    `runtime` is what this process holds besides; where `activations` is None, they are in it. `ranks`: how weights and
    pool lie on those of a split model; `apart`: on who decodes and its prefill worker.
    """

    weights: int
    kv_pool: int
    activations: int | None = None
    runtime: int = 0
    other: int = 0
    free: int = 0
    total: int = 0
    source: str = ""
    graphs: int = 0
    draft: int = 0
    states: int = 0
    ranks: tuple[RankBill, ...] = ()
    apart: bool = False

    @property
    def fixed(self) -> int:
        """What is held from the load on."""
        return self.weights + self.draft + self.kv_pool + self.states + (self.activations or 0)

    @property
    def own(self) -> int:
        """What this process takes."""
        return self.fixed + self.graphs + self.runtime

    @property
    def own_items(self) -> list[Item]:
        """What this process takes, by what it is; graphs where there are any."""
        items = [Item("weights", "weights", self.weights)]
        items += [Item("weights", "draft model", self.draft)] if self.draft else []
        items.append(Item("used", "KV pool", self.kv_pool))
        items += [Item("states", "states", self.states)] if self.states else []
        if self.total:
            items += [Item("activations", "activations", self.activations)] if self.activations is not None else []
            items += [Item("graphs", "graphs", self.graphs)] if self.graphs else []
            items.append(Item("runtime", "runtime", self.runtime))
        return items

    @property
    def items(self) -> list[Item]:
        """All that is known of the device's memory, what is free last."""
        if not self.total:
            return self.own_items
        return [*self.own_items, Item("other", "others", self.other), Item("free", "free", self.free)]


def title_of(name: str) -> str:
    """What people call a line of a bill."""
    return {
        "weights": tr("weights"),
        "draft model": tr("draft model"),
        "KV pool": tr("KV pool"),
        "states": tr("states"),
        "activations": tr("activations"),
        "graphs": tr("graphs"),
        "runtime": tr("runtime"),
        "others": tr("others"),
        "free": tr("free"),
    }[name]


def about(name: str) -> str:
    """What lies in a line of a bill."""
    match name:
        case "weights":
            return tr("the model's parameters, read in every step")
        case "draft model":
            return tr("the parameters of the model that drafts; its keys and values are in the pool")
        case "KV pool":
            return tr(
                "the keys and values of all tokens that requests have so far: blocks × block size × bytes of one token"
            )
        case "states":
            return tr("what layers without keys and values keep of every request that may run, however long it is")
        case "activations":
            return tr("what a step works with: the most that one at the token budget took beyond weights and pool")
        case "graphs":
            return tr("what captured CUDA graphs hold, so that steps can be replayed instead of launched anew")
        case "runtime":
            return tr(
                "what this process holds besides: libraries, the CUDA context, freed memory that is kept for later"
            )
        case "others":
            return tr("other processes")
        case "free":
            return tr("what any process could still take")
    raise KeyError(name)


def device_bill(header: Header, measured: Telemetry | None) -> DeviceBill:
    """The bill at load, with what telemetry measured since: on a CPU runtime, others and what is free; on a GPU others
    and what is free.

    The pool's pages that were never written to are the pool's here, though the system still counts them as free; of
    activations, which are a peak, there is never more than fits.
    """
    if header.bill is not None:
        known = DeviceBill(**asdict(header.bill), source=tr("at load"))
    else:
        known = DeviceBill(
            header.model.weight_bytes, header.pool_bytes, source=tr("weights and pool only: this trace has no bill")
        )
    known = replace(known, ranks=tuple(map(RankBill, header.rank_weights, header.rank_kv)))
    known = replace(known, apart=header.config.disaggregated)
    if measured is None:
        return known
    if header.model.device.startswith("cuda"):
        return _on_gpu(known, measured)
    return _on_cpu(known, measured)


def _on_cpu(known: DeviceBill, measured: Telemetry) -> DeviceBill:
    total, own, free = measured.memory_total, measured.memory, measured.memory_free
    if not (total and own and free):
        return known
    other = max(0, total - own - free)
    return _fitted(replace(known, runtime=max(0, own - known.fixed), other=other, total=total, source=tr("measured")))


def _on_gpu(known: DeviceBill, measured: Telemetry) -> DeviceBill:
    if not (measured.gpu_memory and measured.gpu_memory_total):
        return known
    other = max(0, measured.gpu_memory - known.own)
    return _fitted(replace(known, other=other, total=measured.gpu_memory_total, source=tr("measured")))


def _fitted(bill: DeviceBill) -> DeviceBill:
    """The rest is free; where there is less than none, the parts that are no certain bytes give way."""
    free = bill.total - bill.own - bill.other
    if free < 0 and bill.activations:
        give = min(bill.activations, -free)
        bill, free = replace(bill, activations=bill.activations - give), free + give
    if free < 0:
        give = min(bill.other, -free)
        bill, free = replace(bill, other=bill.other - give), free + give
    return replace(bill, free=max(0, free), total=bill.total if free >= 0 else bill.total - free)


def lengths(context: int) -> tuple[int, ...]:
    """The lengths of a request that a model has room for, its whole context last (0: it does not say)."""
    return (*(n for n in LENGTHS if n < context or not context), *([context] if context else []))


def captured_words(header: Header) -> str:
    """ "Decode graphs: 1–256 rows (35)", or why there are none, and in a line after it "Mixed graphs: 16–2,048 tokens
    (18)" of steps with prompts; on a CPU "2 threads, compiled kernels" in a line before it, and last what host memory
    there is for blocks that leave the pool."""
    graphs, words = header.graphs, []
    if not header.model.device.startswith("cuda"):
        machine = header.machine
        kernels = [_kernels(kind) for kind in machine.kernels.split(":")[:1] if kind]
        words.append(", ".join((trn("{count:,} thread", "{count:,} threads", machine.threads), *kernels)))
    if graphs:
        words.append(tr("Decode graphs: {sizes}", sizes=_rows(graphs)))
    elif header.graphs_off:
        words.append(tr("Decode graphs: off, {why}", why=_why(header.graphs_off)))
    if header.mixed_graphs:
        words.append(tr("Mixed graphs: {sizes}", sizes=_tokens(header.mixed_graphs)))
    elif graphs and header.mixed_off:
        words.append(tr("Mixed graphs: off, {why}", why=_why(header.mixed_off)))
    if header.host_blocks:
        size = header.host_blocks * header.config.block_size * header.kv_token_bytes
        room, rate = bytes_words(size), bytes_words(round(header.swap_rate))
        words.append(tr("Host memory: {size}, copied at {rate}/s", size=room, rate=rate))
    return "\n".join(words)


def _why(words: str) -> str:
    """Why there are no graphs; what is not known here, as the engine says it."""
    known = {
        "switched off": tr("switched off"),
        "a step is long, and gains nothing by it": tr("a step is long, and gains nothing by it"),
    }
    if long := LONG_STEP.fullmatch(words):
        return tr("a step of {seconds} s gains nothing by it", seconds=long[1])
    return known.get(words, words)


def _kernels(kind: str) -> str:
    match kind:
        case "compiled":
            return tr("compiled kernels")
        case "torch's":
            return tr("torch's kernels")
        case _:
            return tr("{kind} kernels", kind=kind)


def _rows(sizes: tuple[int, ...]) -> str:
    """ "1–256 rows (35)"."""
    low, high, graphs = min(sizes), max(sizes), len(sizes)
    if low < high:
        return tr("{low:,}–{high:,} rows ({graphs:,})", low=low, high=high, graphs=graphs)
    return trn("{count:,} row ({graphs:,})", "{count:,} rows ({graphs:,})", low, graphs=graphs)


def _tokens(sizes: tuple[int, ...]) -> str:
    """ "16–2,048 tokens (18)"."""
    low, high, graphs = min(sizes), max(sizes), len(sizes)
    if low < high:
        return tr("{low:,}–{high:,} tokens ({graphs:,})", low=low, high=high, graphs=graphs)
    return trn("{count:,} token ({graphs:,})", "{count:,} tokens ({graphs:,})", low, graphs=graphs)
