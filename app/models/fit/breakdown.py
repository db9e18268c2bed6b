"""The bills of the fit table: which to recommend, what each row says, and the table to export. No Qt."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from app.session import estimate
from app.ui.tables.facts import Cell, Facts
from app.words import bytes_words, counted
from engine.checkpoints import ModelInfo
from engine.config import SCHEMES
from engine.memory import DeviceMemory, Fit, fits, simple_kv

HEAD = "quantization", "precision", "weights", "KV a token", "activations", "pool"
RULE = "|---|---|--:|--:|--:|--:|--:|---|"
RULE_OF_THUMB = "2 · bytes · layers · d_model · length · batch"
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Bills:
    """Every way to load one model on one device. `given_back` of what is free is held by the loaded model, which makes
    room for the next."""

    info: ModelInfo
    room: DeviceMemory
    fits: tuple[Fit, ...]
    given_back: int = 0

    @property
    def recommended(self) -> str:
        """The most precise that can be chosen and fits; "" where none does. A checkpoint that is quantized already is
        called what it is."""
        good = [fit.quantization for fit in self.fits if fit.fits and not fit.available]
        if self.info.quantized is not None and self.info.quantized.method in good:
            return self.info.quantized.method
        return max(good, key=_precision, default="")

    def fit(self, quantization: str) -> Fit | None:
        return next((fit for fit in self.fits if fit.quantization == quantization), None)


def _precision(quantization: str) -> float:
    """What is not quantized first, then more bits, then fewer things rounded."""
    order = ("torchao-int8", "int8", "int8-plain", "awq", "nf4", "nf4-double")
    return 100.0 if quantization == "none" else SCHEMES[quantization].bits - 0.1 * order.index(quantization)


def bills(info: ModelInfo, dtype: str, device: str, held: int, max_running: int, token_budget: int) -> Bills:
    """Looks at the memory and computes; blocks for milliseconds. `held` bytes are given back by the loaded model."""
    memory = estimate.room(device)
    held = min(held, memory.total - memory.free)
    room = replace(memory, free=memory.free + held)
    found = fits(info, room, dtype=dtype, max_running=max_running, token_budget=token_budget)
    return Bills(info, room, tuple(found), held)


def reason(fit: Fit, room: DeviceMemory) -> str:
    """Why it cannot be loaded, or does not fit; "" when it does."""
    if fit.available:
        return fit.available
    if fit.fits:
        return ""
    needed = fit.weights + fit.activations
    short = needed - room.free
    if short <= 0:
        return "nothing is left for the KV cache"
    return f"does not fit: {bytes_words(needed)} before any KV cache, {bytes_words(short)} more than is free"


def holds_words(fit: Fit, length: int) -> str:
    """ "64 × 1,024": how many requests of a length the pool holds."""
    return f"{fit.requests(length):,} × {length:,}"


def row_words(fit: Fit, room: DeviceMemory, length: int) -> str:
    """The whole row, as it is read aloud."""
    title = SCHEMES[fit.quantization].title
    if fit.available:
        return f"{title}: {fit.available}"
    weights, kv, activations, pool = map(bytes_words, (fit.weights, fit.kv_token, fit.activations, fit.pool))
    bill = f"weights {weights}, KV {kv} a token, activations {activations}, pool {pool}"
    if not fit.fits:
        return f"{title} in {fit.dtype}: {reason(fit, room)}; {bill}"
    return f"{title} in {fit.dtype}: fits, {holds_words(fit, length)} tokens; {bill}"


def room_words(bills: Bills) -> str:
    """ "CPU: 19 GB of 24 GB free, 0.4 GB of it once the loaded model has made room"."""
    room = bills.room
    name = "GPU" if room.kind == "cuda" else "Memory"
    words = f"{name}: {bytes_words(room.free)} of {bytes_words(room.total)} free"
    if bills.given_back > room.total // 200:
        words += f", {bytes_words(bills.given_back)} of it given back by the loaded model"
    return words


def rule_words(info: ModelInfo, dtype: str, length: int, batch: int) -> tuple[str, str]:
    """The rule of thumb beside the true KV, and why they differ."""
    item = BYTES[dtype]
    simple = simple_kv(info, item, length, batch)
    true = info.kv_token_bytes(dtype) * length * batch
    said, ruled = (bytes_words(count).replace(" ", "\u00a0") for count in (true, simple))
    formula = f"KV cache of {batch:,} × {length:,} tokens in {dtype}: {said}. Rule of thumb: {RULE_OF_THUMB} = "
    formula += f"2 · {item} · {info.layers} · {info.hidden:,} · {length:,} · {batch:,} = {ruled}."
    dim, plain = info.head_dim, f"d_model / heads = {info.hidden / info.heads:.4g}"
    if 0 < info.kv_layers < info.layers:
        return formula, f"Only {info.kv_layers} of {info.layers} layers keep keys and values, the others read theirs."
    if info.kv_heads < info.heads:
        shared, times = counted(info.kv_heads, "key and value head"), info.heads / info.kv_heads
        why = f"Grouped-query attention: {info.heads} query heads share {shared}, so the cache is {times:.3g} × smaller"
        if dim * info.heads != info.hidden:
            why += f"; heads of {dim} instead of {plain} do the rest"
        return formula, why + "."
    if true == simple:
        return formula, "Every head has keys and values of its own, so both are the same."
    return formula, f"Heads are {dim} wide, not {plain}."


@dataclass(frozen=True, slots=True)
class FitTable:
    """The table as it is exported: bytes exact in CSV and JSON, in words in Markdown."""

    title: str
    bills: Bills
    length: int

    def markdown(self) -> str:
        rows = (*HEAD, f"× {self.length:,} tokens", ""), *map(self._cells, self.bills.fits)
        head, *lines = ("| " + " | ".join(row) + " |" for row in rows)
        return "\n".join((f"{self.title}. {room_words(self.bills)}.", "", head, RULE, *lines)) + "\n"

    def _cells(self, fit: Fit) -> Sequence[str]:
        sizes = map(bytes_words, (fit.weights, fit.kv_token, fit.activations, fit.pool))
        holds = f"{fit.requests(self.length):,}"
        return SCHEMES[fit.quantization].title, fit.dtype, *sizes, holds, reason(fit, self.bills.room) or "fits"

    def csv(self) -> str:
        rows = self._rows()
        return Facts(tuple(rows[0]), [tuple(row.values()) for row in rows]).csv()

    def json(self) -> str:
        room = self.bills.room
        said = {"model": self.title, "device": room.kind, "free": room.free, "total": room.total, "rows": self._rows()}
        return json.dumps(said, indent=2) + "\n"

    def _rows(self) -> Sequence[dict[str, Cell]]:
        return [{**asdict(f), "length": self.length, "requests": f.requests(self.length)} for f in self.bills.fits]
