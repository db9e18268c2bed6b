"""A lane's text, such as `static:8` or `chunked:64:budget=128`, as `--lanes` takes it; and the label made of it."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any
from urllib.parse import quote, unquote

from engine.compare.lane import BATCHED_MODES, JOINING_MODES, Lane
from engine.compare.remote import SERVER_GRAMMAR, parse_server
from engine.config.live_budget import SHARED_BUDGET_MODES
from engine.config.parallel import Parallel
from engine.config.sampling_params import MOST_SAMPLES
from engine.config.specs import (
    ADMISSIONS,
    COLOCATED_MODES,
    KV_DTYPES,
    MODES,
    PAGED_MODES,
    PREEMPTIONS,
    SOLITARY_MODES,
    SPECULATIONS,
    TARGET_MODES,
    EngineConfig,
    InvalidInput,
    ModelSpec,
)

LANE_GRAMMAR = (
    "MODE[:N][:prefix][:sp|:ep][:KEY=VALUE…], e.g. static:8, chunked:64:budget=128, continuous:prefix, "
    f"dynamic:8:wait=0.2; or {SERVER_GRAMMAR}"
)

SHARING = {"sp": "sequence", "ep": "experts"}  # words of a lane, by the fields of `Parallel` that they are


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() and "." not in text else value


def _switch(text: str) -> bool:
    return {"yes": True, "no": False}[text]


def _count_or(*words: str) -> Callable[[str], int | str]:
    return lambda text: text if text in words else int(text)


def _ranks(text: str) -> Parallel:
    return Parallel(int(text))


def _stages(text: str) -> Parallel:
    stages, _, micro = text.partition("x")
    return Parallel(pipeline=int(stages), micro_batches=int(micro or 0))


def _adapters(text: str) -> tuple[str, ...]:
    return tuple(map(unquote, text.split("+")))


@dataclass(frozen=True, slots=True)
class _Key:
    """How a key of a lane's text is read, which modes it means something to, and what it adds to a lane's name."""

    field: str
    read: Callable[[str], Any]
    kind: str
    modes: tuple[str, ...] = tuple(MODES)
    words: str = ""


_CONFIG_KEYS = {
    "budget": _Key("token_budget", int, "a whole number of tokens", SHARED_BUDGET_MODES, "budget {}"),
    "itl": _Key("target_itl", _number, "a number of seconds", TARGET_MODES, "ITL \N{LESS-THAN OR EQUAL TO} {:g} s"),
    "join": _Key("join_every", int, "a whole number of steps", JOINING_MODES, "joins every {}"),
    "wait": _Key("longest_wait", _number, "a number of seconds", ("dynamic",), "waits {:g} s"),
    "deliver": _Key("delivery", str, "stream or batch", BATCHED_MODES, "delivers whole"),
    "block": _Key("block_size", int, "a power of two", words="blocks of {}"),
    "depth": _Key("depth", int, "0 or 1", words="depth {}"),
    "graphs": _Key("cuda_graphs", _switch, "yes or no", PAGED_MODES, "no graphs"),
    "mixed": _Key("mixed_graphs", _switch, "yes or no", PAGED_MODES, "no mixed graphs"),
    "admission": _Key("admission", str, f"one of {', '.join(ADMISSIONS)}", words="{}"),
    "preemption": _Key("preemption", str, " or ".join(PREEMPTIONS), COLOCATED_MODES, "preempts by {}"),
    "offload": _Key("offload_prefixes", _switch, "yes or no", COLOCATED_MODES, "prefixes to the host"),
    "swap": _Key("swap_memory", int, "a number of bytes", COLOCATED_MODES, "{:,} B to swap to"),
    "seed": _Key("seed", int, "a whole number"),
    "mix": _Key("mixed_adapters", _switch, "yes or no", PAGED_MODES, "one adapter at a time"),
    "kv": _Key("kv_dtype", str, f"one of {', '.join(KV_DTYPES)}", PAGED_MODES, "KV {}"),
    "window": _Key("kv_window", int, "a whole number of tokens", PAGED_MODES, "KV window {}"),
    "sinks": _Key("kv_sinks", int, "a whole number of tokens", PAGED_MODES, "{} sinks"),
    "speculation": _Key("speculation", str, f"one of {', '.join(SPECULATIONS)}", PAGED_MODES, "{} drafts"),
    "k": _Key("speculated", _count_or("auto"), "auto or a whole number of tokens", PAGED_MODES, "k = {}"),
    "draft": _Key("draft", ModelSpec, "demo, a folder or a hub id", PAGED_MODES, "draft {0.source}"),
}
_SPEC_KEYS = {
    "model": _Key("source", str, "demo, a folder or a hub id"),
    "quantization": _Key("quantization", str, "a kind of quantization"),
    "dtype": _Key("dtype", str, "a dtype"),
    "device": _Key("device", str, "a device"),
    "revision": _Key("revision", str, "a revision"),
    "tp": _Key("parallel", _ranks, "a whole number of ranks", COLOCATED_MODES),
    "pp": _Key(
        "parallel", _stages, "a whole number of stages, or stages and micro-batches such as 2x4", COLOCATED_MODES
    ),
    "kv_heads": _Key("kv_heads", _count_or("auto", "all"), "auto, all or a whole number of heads"),
    "adapters": _Key("adapters", _adapters, "folders, or NAME=FOLDER, with + between them"),
    "trust": _Key("trust_remote_code", _switch, "yes or no"),
}
_LANE_KEYS = {
    "beams": _Key("beams", int, "a whole number of beams", COLOCATED_MODES, "{} beams"),
    "name": _Key("name", str, "a name"),
}
_KEYS = _CONFIG_KEYS | _SPEC_KEYS | _LANE_KEYS
_ESCAPED = re.compile(r"[%:,]|^\s|\s$")


def parse_lane(text: str, spec: ModelSpec | None = None, seed: int = 0) -> Lane:
    """The lane of a text; what it does not say of the model is taken from `spec` (the demo model), as is its `seed`.

    Values are percent-decoded: `%3A`, `%2C` and `%25` stand for a colon, a comma and a percent sign. Raises
    InvalidInput naming the part that is wrong and the remedy.
    """

    def wrong(part: str, remedy: str) -> InvalidInput:
        return InvalidInput(f"lane {text!r}: {part!r}: {remedy}")

    if text.strip().startswith("server="):
        server, name = parse_server(text)
        return Lane(EngineConfig(seed=seed), spec or ModelSpec(), name, server=server)
    mode, *parts = text.strip().split(":")
    if mode not in MODES:
        raise wrong(mode, f"no such mode; use one of {', '.join(MODES)} (a lane is {LANE_GRAMMAR})")
    found: dict[str, Any] = {}  # by field
    key, sharing = "", dict[str, bool]()
    for i, part in enumerate(parts):
        key_before, (key, equals, value) = key, part.partition("=")
        if part.isascii() and part.isdigit() and key_before == "device":
            found["device"] += f":{part}"  # device=cuda:0
        elif part.isascii() and part.isdigit():
            if i > 0:
                raise wrong(part, "the number of requests that run at once comes right after the mode")
            if mode in SOLITARY_MODES:
                raise wrong(part, f"{mode} runs one request at a time; leave the number out")
            found["max_running"] = int(part)
        elif part == "prefix":
            if mode not in PAGED_MODES:
                raise wrong(part, f"{mode} has no blocks to share; use one of {', '.join(PAGED_MODES)}")
            found["prefix_caching"] = True
        elif part in SHARING:
            if mode not in PAGED_MODES:
                raise wrong(part, f"means nothing to {mode}; it is for {', '.join(PAGED_MODES)}")
            sharing[SHARING[part]] = True
        elif not equals or key not in _KEYS:
            raise wrong(part, f"not a part of a lane; keys are {', '.join(_KEYS)} (a lane is {LANE_GRAMMAR})")
        else:
            rule = _KEYS[key]
            if mode not in rule.modes:
                raise wrong(part, f"means nothing to {mode}; it is for {', '.join(rule.modes)}")
            try:
                read = rule.read(unquote(value))
            except (ValueError, KeyError):
                raise wrong(part, f"{key} must be {rule.kind}") from None
            if rule.field in found:
                twice = "a model is split by tp or by pp, once" if rule.field == "parallel" else f"{key} is given twice"
                raise wrong(part, twice)
            found[rule.field] = read
    own = {field: found.pop(field) for field in _LANE_KEYS if field in found}
    if not 1 <= own.get("beams", 1) <= MOST_SAMPLES:
        raise wrong(f"beams={own['beams']}", f"must be from 1 to {MOST_SAMPLES}")
    model = {rule.field: found.pop(rule.field) for rule in _SPEC_KEYS.values() if rule.field in found}
    given = {"seed": seed, "token_budget": max(EngineConfig().token_budget, found.get("max_running", 0))} | found
    try:
        if sharing:
            model["parallel"] = replace(model.get("parallel", (spec or ModelSpec()).parallel), **sharing)
        return Lane(EngineConfig(mode, **given), replace(spec or ModelSpec(), **model), **own)
    except InvalidInput as error:
        raise InvalidInput(f"lane {text!r}: {error}") from None


def parse_lanes(text: str, spec: ModelSpec | None = None, seed: int = 0) -> tuple[Lane, ...]:
    """Lanes with commas between them. Raises InvalidInput."""
    return tuple(parse_lane(part, spec, seed) for part in text.split(","))


def lane_text(lane: Lane) -> str:
    """The text that `parse_lane` reads as this lane. Settings that mean nothing to its mode are left out, as is
    `kv_memory`, which a comparison gives to all lanes alike."""
    config, spec = lane.config, lane.spec
    if lane.server is not None:
        return lane.server.text() + (f":name={_escape(lane.name)}" if lane.name else "")
    parts = [config.mode]
    if config.mode not in SOLITARY_MODES and config.max_running != EngineConfig().max_running:
        parts.append(str(config.max_running))
    if config.prefix_caching:
        parts.append("prefix")
    parts += [f"{key}={_escape(_word(value))}" for key, value in _chosen(config)]
    if lane.beams > 1:
        parts.append(f"beams={lane.beams}")
    for key, rule in _SPEC_KEYS.items():
        value, default = getattr(spec, rule.field), getattr(ModelSpec(), rule.field)
        if value != default and (rule.field != "parallel" or (key == "pp") is (spec.parallel.pipeline > 1)):
            parts.append(f"{key}={_escape(_word(value))}")
    parts += _shared(spec.parallel)
    if lane.name:
        parts.append(f"name={_escape(lane.name)}")
    return ":".join(parts)


def _chosen(config: EngineConfig) -> Iterator[tuple[str, Any]]:
    """The settings that mean something to the mode and are not what they are by default, by their key."""
    for key, rule in _CONFIG_KEYS.items():
        value, default = getattr(config, rule.field), getattr(EngineConfig(), rule.field)
        if key == "budget":
            default = max(default, config.max_running)
        if value != default and config.mode in rule.modes:
            yield key, value


def _shared(parallel: Parallel) -> list[str]:
    """What the ranks of a model share out besides heads and columns, by the words of a lane."""
    return [word for word, field in SHARING.items() if getattr(parallel, field)]


def _word(value: Any) -> str:
    if isinstance(value, ModelSpec):
        return f"{value.source}@{value.revision}" if value.revision else value.source
    if isinstance(value, Parallel):
        micro = f"x{value.micro_batches}" if value.micro_batches else ""
        return f"{value.pipeline}{micro}" if value.pipeline > 1 else str(value.tensor)
    if isinstance(value, tuple):
        return "+".join(each.replace("%", "%25").replace("+", "%2B") for each in value)
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _escape(value: str) -> str:
    return _ESCAPED.sub(lambda m: quote(m[0]), value)


def lane_name(lane: Lane, size: bool = True) -> str:
    """A short label: "static · 8", "continuous · 64 + prefix"; without the `size` where that is what varies."""
    if lane.name:
        return lane.name
    if lane.server is not None:
        return " · ".join(filter(None, (lane.server.place, PurePath(lane.server.model).name)))
    config, spec = lane.config, lane.spec
    parts = [config.mode]
    if size and config.mode not in SOLITARY_MODES:
        parts.append(f"{config.max_running}")
    parts += [words.format(value) for key, value in _chosen(config) if (words := _CONFIG_KEYS[key].words)]
    if lane.beams > 1:
        parts.append(f"{lane.beams} beams")
    if spec.source != ModelSpec().source:
        parts.append(PurePath(spec.source).name or spec.source)
    if spec.parallel.tensor > 1:
        parts.append(f"tp {spec.parallel.tensor}" + "".join(f" {part}" for part in _shared(spec.parallel)))
    if spec.parallel.pipeline > 1:
        parts.append(f"pp {_word(spec.parallel)}")
    parts += [v for v in (spec.quantization, spec.dtype) if v not in ("none", "auto")]
    if spec.kv_heads != "auto":
        parts.append("multi-head" if spec.kv_heads == "all" else f"{spec.kv_heads} KV heads")
    return " · ".join(parts) + (" + prefix" if config.prefix_caching else "")


def lane_names(lanes: Sequence[Lane], size: bool = True) -> tuple[str, ...]:
    """Each lane's label; lanes that would share one are numbered."""
    names = [lane_name(lane, size) for lane in lanes]
    often, seen = Counter(names), Counter[str]()
    for i, name in enumerate(names):
        if often[name] > 1:
            seen[name] += 1
            names[i] = f"{name} ({seen[name]})"
    return tuple(names)
