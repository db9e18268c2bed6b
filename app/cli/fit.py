"""`batchscope fit`: whether a model fits, and how, before any of its weights is read."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from app.cli.shared.columns import columns
from app.cli.shared.options import adapters_of, kv_dtype_option, model_options, price_of, price_option, whole
from app.session.memory.estimate import room
from app.words import adapters_words, bytes_words, count_words
from engine import EngineConfig, InvalidInput, ModelSpec
from engine.checkpoints import ModelInfo, inspect_adapter, why_unsupported
from engine.core import nvidia_driver
from engine.memory import Datasheet, DeviceMemory, Fit, find_datasheet, fits, model_info, rank_counts, simple_kv

LENGTH = 1024
SHAPE = ("layers", "heads", "kv_heads", "head_dim", "hidden", "vocabulary", "context", "window")
FACTS = ("name", "architecture", "model_type", "parameters", *SHAPE, "dtype", "chat", "licence")
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "what a model would take in each quantization, and whether it fits, before it is loaded"
    fit = commands.add_parser("fit", help=does)
    fit.add_argument("model", nargs="?", default="demo", help="demo, a model folder or a hub id (default: demo)")
    model_options(fit, "--revision", "--dtype", "--device", "--kv-heads", "--tensor-parallel", "--adapter")
    kv_dtype_option(fit)
    fit.add_argument(
        "--on", metavar="NAME", help='a GPU that is not here, as its maker publishes it: "RTX 4090", H100, ...'
    )
    price_option(fit, "of an hour of that GPU, in any currency: what a million tokens cost there at the least")
    fit.add_argument("--length", type=whole, default=LENGTH, metavar="TOKENS", help=f"of a request (default: {LENGTH})")
    fit.add_argument("--json", action="store_true", help="print all numbers as JSON")
    fit.set_defaults(command=run_fit)


@dataclass(frozen=True, slots=True)
class Asked:
    """What of: a request's `length` in tokens, the dtype that K and V are kept in, how many `ranks` share the model,
    the device `elsewhere` that it would be on, None for this machine's, the `price` of an hour of it, and the names of
    the `adapters` that are among the weights."""

    length: int
    kv_dtype: str = "auto"
    ranks: int = 1
    elsewhere: Datasheet | None = None
    price: float = 0.0
    adapters: tuple[str, ...] = ()

    def bounds(self, info: ModelInfo, bill: Fit) -> tuple[float, float]:
        """Tokens a second at the most elsewhere: of one request alone, and of as many as run at once."""
        if self.elsewhere is None or not bill.fits or self.ranks > 1:
            return 0.0, 0.0
        most = min(bill.requests(self.length), EngineConfig().max_running)
        return (
            self.elsewhere.decode_bound(info, bill, 1, self.length),
            self.elsewhere.decode_bound(info, bill, most, self.length),
        )

    def costs(self, info: ModelInfo, bill: Fit) -> tuple[float | None, ...]:
        """What a million tokens cost there at the least, of one request alone and of as many as run at once; None where
        that is not known."""
        known = [most if self.price else 0.0 for most in self.bounds(info, bill)]
        return tuple(self.price / 3600 / most * 1e6 if most else None for most in known)


def run_fit(options: argparse.Namespace) -> int:
    price = price_of(options)
    if price and options.tensor_parallel > 1:
        raise InvalidInput(f"--price {price:g}: bounds, and so costs, are of one device; leave --tensor-parallel out")
    if price and options.on is None:
        raise InvalidInput(f"--price {price:g}: it is of a GPU that is not here; name it with --on")
    elsewhere = find_datasheet(options.on) if options.on is not None else None
    if elsewhere is not None and options.device != "auto":
        raise InvalidInput(f"--on {options.on}: another device than --device {options.device}; leave one of them out")
    if options.device.startswith("cuda") and not nvidia_driver():
        raise InvalidInput(f"device={options.device!r}: no NVIDIA driver is here; use cpu, or --on with a GPU's name")
    spec = ModelSpec(
        *(options.model, "none", options.dtype, options.device, options.revision),
        kv_heads=options.kv_heads,
        adapters=adapters_of(options),
    )
    info, memory = model_info(spec), room(options.device) if elsewhere is None else elsewhere.room
    length = min(options.length, info.context or options.length)
    kept = EngineConfig(kv_dtype=options.kv_dtype).kv_dtype
    adapters = [inspect_adapter(each) for each in spec.adapters]
    names = tuple(each.name for each in adapters)
    asked = Asked(length, kept, options.tensor_parallel, elsewhere, price, names)
    if memory.kind == "cpu":  # all ranks have it together
        memory = replace(memory, free=memory.free // asked.ranks, total=memory.total // asked.ranks)
    bills = fits(info, memory, dtype=options.dtype, kv_dtype=kept, ranks=asked.ranks, adapters=adapters)
    told = as_json if options.json else as_text
    print(told(info, memory, bills, asked))
    return 0


def as_json(info: ModelInfo, memory: DeviceMemory, bills: list[Fit], asked: Asked) -> str:
    facts: dict[str, Any] = {name: getattr(info, name) for name in FACTS}
    facts |= {"unsupported": why_unsupported(info.model_type), "stored_bytes": info.weight_bytes}
    facts["quantized"] = asdict(info.quantized) if info.quantized is not None else None
    rows = [
        asdict(bill)
        | {"requests": bill.requests(asked.length), "simple_kv_token": simple_kv(info, BYTES[bill.dtype], 1, 1)}
        | dict(zip(("most_tokens_alone", "most_tokens_together"), asked.bounds(info, bill)))
        | dict(zip(("least_cost_alone", "least_cost_together"), asked.costs(info, bill)))
        for bill in bills
    ]
    told = {"model": facts, "room": asdict(memory), "length": asked.length, "kv_dtype": asked.kv_dtype, "fits": rows}
    told |= {"adapters": asked.adapters, "ranks": asked.ranks, "devices_needed": bills[0].devices}
    told |= {"on": asdict(asked.elsewhere) if asked.elsewhere is not None else None}
    return json.dumps(told, indent=1)


def as_text(info: ModelInfo, memory: DeviceMemory, bills: list[Fit], asked: Asked) -> str:
    where = "the GPU, driver and libraries left out" if memory.kind == "cuda" else "this machine"
    lines = [info.name, "", *_table(info, bills, asked), ""]
    notes = {bill.note: [b.quantization for b in bills if b.note == bill.note] for bill in bills if bill.note}
    lines += [f"{', '.join(names)}: {note}" for note, names in notes.items()]
    lines += [f"{adapters_words(asked.adapters)}, among the weights"] if asked.adapters else []
    lines += [
        f"memory: {bytes_words(memory.free)} of {bytes_words(memory.total)} free on {where}; "
        f"a request is {asked.length:,} tokens"
        if asked.elsewhere is None
        else _published(asked.elsewhere, bills[0].dtype, asked, bool(info.experts)),
        *_split_words(info, memory, bills, asked.ranks),
        *(_rule_of_thumb(info, bills[0], asked.length, asked.kv_dtype) if asked.ranks == 1 else ()),
        *_facts(info),
    ]
    return "\n".join(lines)


def _published(sheet: Datasheet, dtype: str, asked: Asked, mixture: bool) -> str:
    figures = f"{bytes_words(sheet.memory)} at {sheet.bandwidth / 1e9:,.0f} GB/s"
    said = (
        f"{sheet.name}, as its maker publishes it: {figures}, {sheet.rate(dtype) / 1e12:,.4g} TFLOP/s in {dtype}; a "
        f"request is {asked.length:,} tokens"
    )
    bounds = (
        "  tok/s: decoding's bounds, from what a step reads (weights, K and V) or multiplies; no program passes them"
        f"{', if all experts are as likely' if mixture else ''}"
    )
    if asked.price:
        bounds += f"\n  1 M: a million of these tokens, at {asked.price:g} an hour"
    return said if asked.ranks > 1 else f"{said}\n{bounds}"


def _table(info: ModelInfo, bills: list[Fit], asked: Asked) -> list[str]:
    bounded = asked.elsewhere is not None and asked.ranks == 1
    bounds: tuple[str, ...] = ("tok/s, one", "all at once") if bounded else ()
    bounds += ("1 M, one", "all at once") if bounded and asked.price else ()
    requests = f"requests of {asked.length:,}"
    rows: list[tuple[str, ...]] = [
        ("quantization", "dtype", "weights", "KV a token", "activations", "KV pool", requests, *bounds, "")
    ]
    for bill in bills:
        sizes = map(bytes_words, (bill.weights, bill.kv_token, bill.activations, bill.pool))
        verdict = bill.available or ("fits" if bill.fits else "does not fit")
        most = [f"≤ {each:,.0f}" if each else "—" for each in asked.bounds(info, bill)] if bounded else []
        if bounded and asked.price:
            most += [f"≥ {each:.3g}" if each else "—" for each in asked.costs(info, bill)]
        rows.append((bill.quantization, bill.dtype, *sizes, f"{bill.requests(asked.length):,}", *most, verdict))
    return columns(rows, right=range(2, 7 + len(bounds)))


def _split_words(info: ModelInfo, memory: DeviceMemory, bills: list[Fit], ranks: int) -> list[str]:
    """What is said of several devices."""
    if ranks > 1:
        where = "of as much memory each" if memory.kind == "cuda" else "of this machine, which share its memory"
        return [f"split over {ranks} ranks {where}: the table tells of one of them"]
    if not (needed := bills[0].devices):
        return []
    whole = "" if needed in rank_counts(info, bills[0].quantization) else " --expert-parallel"
    where = f"split over {needed} such it would: --tensor-parallel {needed}{whole}"
    return [f"as it is, not quantized, it does not fit on one device; {where}"]


def _rule_of_thumb(info: ModelInfo, bill: Fit, length: int, kv_dtype: str) -> list[str]:
    """What the well-known formula says of one request, beside what it really takes, and why they differ."""
    simple, true = simple_kv(info, BYTES[bill.dtype], length, 1), bill.kv_token * length
    said = (
        f"KV of one request, {bill.dtype if kv_dtype == 'auto' else kv_dtype}: {bytes_words(true)}; the rule of thumb "
        f"2 · bytes · layers · d_model · length · batch says {bytes_words(simple)}"
    )
    if info.latent:
        why = (
            f"with latent attention {info.heads} heads share one latent of {info.head_dim} numbers, which is keys and "
            f"values at once, where the rule takes d_model = {info.hidden:,} for each"
        )
    elif info.kv_heads < info.heads:
        why = (
            f"with grouped-query attention {info.heads} query heads share the keys and values of {info.kv_heads}: "
            f"{info.kv_heads} × {info.head_dim} numbers each, where the rule takes d_model = {info.hidden:,}"
        )
    elif info.kv_token_bytes(bill.dtype) * length != simple:
        why = (
            f"heads are {info.head_dim} wide here: {info.kv_heads} × {info.head_dim} numbers each for keys and values, "
            f"where the rule takes d_model = {info.hidden:,}"
        )
    else:
        why = "every query head has keys and values of its own here, as the rule takes it"
    if info.states.layers:
        kept = f"{info.states.layers} keep a state of a request, {bytes_words(bill.states)} in all however long it is"
        why += f"; {info.kv_layers} of {info.layers} layers keep keys and values, {kept}"
    elif 0 < info.kv_layers < info.layers:
        why += f"; only {info.kv_layers} of {info.layers} layers keep keys and values, the others read theirs"
    if kv_dtype != "auto":
        why += f"; in {kv_dtype} a number takes a byte, and each head one more for its scale"
    return [said, f"  {why}"]


def _facts(info: ModelInfo) -> list[str]:
    stored = f", stored as {info.dtype}"
    if info.quantized is not None:
        stored = f", stored as {info.quantized.method}, {info.quantized.bits} bit, groups of {info.quantized.group}"
    window = f", {info.window:,} in its sliding-window layers" if info.window else ""
    why = why_unsupported(info.model_type)
    return [
        f"parameters: {info.parameters:,} ({count_words(info.parameters)}){stored}",
        f"context: {info.context:,} tokens{window}" if info.context else "context: the model does not say",
        f"architecture: {info.architecture}, {'not served: ' + why if why else 'served'}",
        f"chat template: {'yes' if info.chat else 'no, send it plain text'}",
        f"licence: {info.licence or 'not said in its files'}",
    ]
