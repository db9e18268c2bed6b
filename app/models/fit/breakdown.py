"""The bills of the fit table: which to recommend, what each row says, and the table to export. No Qt."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from app.language import digits, tr, trn
from app.session.memory import estimate
from app.ui.tables.facts import Cell, Facts
from app.words import bytes_words, number
from engine.checkpoints import ModelInfo
from engine.config import SCHEMES
from engine.memory import Datasheet, DeviceMemory, Fit, find_datasheet, fits, simple_kv

HEAD = tr("quantization"), tr("precision"), tr("weights"), tr("KV a token"), tr("activations"), tr("pool")
RULE = "|---|---|--:|--:|--:|--:|--:|---|"
RULE_OF_THUMB = tr("2 · bytes · layers · d_model · length · batch")
ELSEWHERE = "elsewhere "
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Bills:
    """Every way to load one model on one device. `given_back` of what is free is held by the loaded model, which makes
    room for the next. `elsewhere`: the device is not here, and this is published of it."""

    info: ModelInfo
    room: DeviceMemory
    fits: tuple[Fit, ...]
    given_back: int = 0
    elsewhere: Datasheet | None = None

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
    order = ("torchao-int8", "int8", "int8-plain", "awq", "nf4", "nf4-double", "mxfp4")
    return 100.0 if quantization == "none" else SCHEMES[quantization].bits - 0.1 * order.index(quantization)


def bills(info: ModelInfo, dtype: str, device: str, held: int, max_running: int, token_budget: int) -> Bills:
    """Looks at the memory and computes; blocks for milliseconds. `device` as in ModelSpec, or `ELSEWHERE` and the name
    of one that is not here. `held` bytes are given back by the loaded model."""
    if device.startswith(ELSEWHERE):
        sheet = find_datasheet(device.removeprefix(ELSEWHERE))
        found = fits(info, sheet.room, dtype=dtype, max_running=max_running, token_budget=token_budget)
        return Bills(info, sheet.room, tuple(found), elsewhere=sheet)
    memory = estimate.room(device, runtime=0) if held else estimate.room(device)  # the loaded model has its own there
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
        words = tr("nothing is left for the KV cache")
    else:
        words = tr(
            "does not fit: {needed} before any KV cache, {short} more than is free",
            needed=bytes_words(needed),
            short=bytes_words(short),
        )
    return (
        tr("{why}; split over {count} such GPUs it would fit", why=words, count=fit.devices) if fit.devices else words
    )


def holds_words(fit: Fit, length: int) -> str:
    """ "64 × 1,024": how many requests of a length the pool holds."""
    return digits(f"{fit.requests(length):,} × {length:,}")


def row_words(fit: Fit, room: DeviceMemory, length: int) -> str:
    """The whole row, as it is read aloud."""
    title = SCHEMES[fit.quantization].title
    if fit.available:
        return f"{title}: {fit.available}"
    weights, kv, activations, pool = map(bytes_words, (fit.weights, fit.kv_token, fit.activations, fit.pool))
    bill = tr(
        "weights {weights}, KV {kv} a token, activations {activations}, pool {pool}",
        weights=weights,
        kv=kv,
        activations=activations,
        pool=pool,
    )
    way = tr("{title} in {dtype}", title=title, dtype=fit.dtype)
    if not fit.fits:
        return f"{way}: {reason(fit, room)}; {bill}"
    return tr("{way}: fits, {holds} tokens; {bill}", way=way, holds=holds_words(fit, length), bill=bill)


def room_words(bills: Bills) -> str:
    """ "CPU: 19 GB of 24 GB free, 0.4 GB of it once the loaded model has made room"."""
    room = bills.room
    free, total = bytes_words(room.free), bytes_words(room.total)
    if bills.elsewhere is not None:
        told = {"device": bills.elsewhere.name, "speed": digits(f"{bills.elsewhere.bandwidth / 1e9:,.0f} GB/s")}
        return tr("{device}, as published: {free} of {all} free, read at {speed}", free=free, all=total, **told)
    if room.kind == "cuda":
        words = tr("GPU: {free} of {all} free", free=free, all=total)
    else:
        words = tr("Memory: {free} of {all} free", free=free, all=total)
    if bills.given_back > room.total // 200:
        back = bytes_words(bills.given_back)
        return tr("{room}, {bytes} of it given back by the loaded model", room=words, bytes=back)
    return words


def bound_words(bills: Bills, fit: Fit, length: int, most: int) -> str:
    """What decoding could do at the most on a device that is not here, of one request and of up to `most` at once; ""
    where nobody knows."""
    sheet, count = bills.elsewhere, min(most, fit.requests(length))
    if sheet is None or not fit.fits:
        return ""
    one, all_ = (sheet.decode_bound(bills.info, fit, rows, length) for rows in (1, count))
    if not one or not all_:
        return ""
    way = tr("{title} in {dtype}", title=SCHEMES[fit.quantization].title, dtype=fit.dtype)
    said = {"way": way, "one": number(one), "all": number(all_)}
    if bills.info.experts:
        return tr(
            "{way}: decoding there reaches at most {one} tokens a second for one request, {all} for {count:,} at once: "
            "of a mixture a step reads the experts that any of its tokens asks, here as if all were as likely.",
            count=count,
            **said,
        )
    return trn(
        "{way}: decoding there reaches at most {one} tokens a second for one request: a step reads all weights once.",
        "{way}: decoding there reaches at most {one} tokens a second for one request, {all} for {count:,} at once: a "
        "step reads all weights once, and each request's keys and values.",
        count,
        **said,
    )


def rule_words(info: ModelInfo, dtype: str, length: int, batch: int) -> tuple[str, str]:
    """The rule of thumb beside the true KV, and why they differ."""
    item = BYTES[dtype]
    simple = simple_kv(info, item, length, batch)
    true = info.kv_token_bytes(dtype) * length * batch
    said, ruled = (bytes_words(count).replace(" ", "\u00a0") for count in (true, simple))
    formula = tr(
        "KV cache of {batch:,} × {length:,} tokens in {dtype}: {bytes}. Rule of thumb: {rule} = {figures} = {ruled}.",
        batch=batch,
        length=length,
        dtype=dtype,
        bytes=said,
        rule=RULE_OF_THUMB,
        figures=digits(f"2 · {item} · {info.layers} · {info.hidden:,} · {length:,} · {batch:,}"),
        ruled=ruled,
    )
    dim, plain = info.head_dim, f"d_model / heads = {info.hidden / info.heads:.4g}"
    if info.states.layers:
        return formula, tr(
            "{some} of {all} layers keep keys and values; {states} keep a state of a request, {bytes} in all however "
            "long it is.",
            some=info.kv_layers,
            all=info.layers,
            states=info.states.layers,
            bytes=bytes_words(info.states.bytes(item)).replace(" ", "\u00a0"),
        )
    if 0 < info.kv_layers < info.layers:
        return formula, tr(
            "Only {some} of {all} layers keep keys and values, the others read theirs.",
            some=info.kv_layers,
            all=info.layers,
        )
    if info.latent:
        return formula, tr(
            "Latent attention: {heads} heads share one latent of {dim} numbers, keys and values at once, so the cache "
            "is {times:.3g} × smaller.",
            heads=info.heads,
            dim=dim,
            times=simple / true,
        )
    if info.kv_heads < info.heads:
        why = trn(
            "Grouped-query attention: {heads} query heads share {count:,} key and value head, "
            "so the cache is {times:.3g} × smaller",
            "Grouped-query attention: {heads} query heads share {count:,} key and value heads, "
            "so the cache is {times:.3g} × smaller",
            info.kv_heads,
            heads=info.heads,
            times=info.heads / info.kv_heads,
        )
        if dim * info.heads != info.hidden:
            why = tr("{why}; heads of {dim} instead of {plain} do the rest", why=why, dim=dim, plain=plain)
        return formula, f"{why}."
    if true == simple:
        return formula, tr("Every head has keys and values of its own, so both are the same.")
    return formula, tr("Heads are {dim} wide, not {plain}.", dim=dim, plain=plain)


@dataclass(frozen=True, slots=True)
class FitTable:
    """The table as it is exported: bytes exact in CSV and JSON, in words in Markdown."""

    title: str
    bills: Bills
    length: int

    def markdown(self) -> str:
        rows = (*HEAD, tr("× {tokens:,} tokens", tokens=self.length), ""), *map(self._cells, self.bills.fits)
        head, *lines = ("| " + " | ".join(row) + " |" for row in rows)
        return "\n".join((f"{self.title}. {room_words(self.bills)}.", "", head, RULE, *lines)) + "\n"

    def _cells(self, fit: Fit) -> Sequence[str]:
        sizes = map(bytes_words, (fit.weights, fit.kv_token, fit.activations, fit.pool))
        holds = digits(f"{fit.requests(self.length):,}")
        return SCHEMES[fit.quantization].title, fit.dtype, *sizes, holds, reason(fit, self.bills.room) or tr("fits")

    def csv(self) -> str:
        rows = self._rows()
        return Facts(tuple(rows[0]), [tuple(row.values()) for row in rows]).csv()

    def json(self) -> str:
        room = self.bills.room
        there = self.bills.elsewhere
        device = there.name if there is not None else room.kind
        said = {"model": self.title, "device": device, "free": room.free, "total": room.total, "rows": self._rows()}
        return json.dumps(said, indent=2) + "\n"

    def _rows(self) -> Sequence[dict[str, Cell]]:
        return [{**asdict(f), "length": self.length, "requests": f.requests(self.length)} for f in self.bills.fits]
