"""Options that several commands share, and what they stand for."""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from math import inf
from pathlib import Path
from typing import Any

from app.words import SHIPPED
from engine import (
    EngineConfig,
    InvalidInput,
    ModelSpec,
    Parallel,
    SamplingParams,
    Workload,
    list_workloads,
    load_workload,
)
from engine.checkpoints import EMBEDDED_ADAPTERS, inspect_adapter, inspect_model
from engine.config import (
    ADMISSIONS,
    DELIVERIES,
    DTYPES,
    MODES,
    PAGED_MODES,
    PREEMPTIONS,
    QUANTIZATIONS,
    SPECULATIONS,
    adapter_name,
)
from engine.jobs import engine_missing
from engine.trace import Slo
from engine.workloads import ARRIVALS, SCHEMAS, load_schema

NO_ADAPTER = "none"
OF_WORKLOADS = ("count", "arrivals", "rate", "burstiness", "concurrency")


def whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return value


def size_in_bytes(text: str) -> int:
    """A size such as 512M or 4G in bytes."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 1)
    try:
        return int(float(number) * unit)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512M or 4G") from None


def early_stopping(text: str) -> bool | str:
    """When a beam search is over."""
    if text.lower() not in ("true", "false", "never"):
        raise argparse.ArgumentTypeError(f"{text!r} is not true, false or never")
    return "never" if text.lower() == "never" else text.lower() == "true"


def bias(text: str) -> tuple[int, float]:
    """A token's id and what is added to its logit."""
    token, equals, value = text.partition("=")
    try:
        return int(token), float(value if equals else "")
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a token's id and a number, such as 42=-5") from None


def listed(text: str) -> list[str]:
    """Texts between commas, at least one."""
    if not (found := [part.strip() for part in text.split(",") if part.strip()]):
        raise argparse.ArgumentTypeError(f"{text!r} names nothing; give texts with commas between them")
    return found


def json_schema(source: str) -> dict[str, Any]:
    try:
        return load_schema(source)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# What each command adds to its parser.


def model_options(to: argparse.ArgumentParser, *names: str, sends: bool = False) -> None:
    """Of how a model is loaded: those that are named, or all, as a group of their own. `sends`: the command sends
    requests itself."""
    ships = ", ".join(EMBEDDED_ADAPTERS)
    turns = f": requests that name none go through them in turn, {NO_ADAPTER} being the model as it is" if sends else ""
    options: dict[str, dict[str, Any]] = {
        "--model": {"default": "demo", "help": "demo, a model folder or a hub id (default: demo)"},
        "--quantization": {"default": "none", "metavar": "KIND", "help": f"one of {', '.join(QUANTIZATIONS)}"},
        "--dtype": {"default": "auto", "choices": DTYPES, "metavar": "DTYPE", "help": f"one of {', '.join(DTYPES)}"},
        "--device": {"default": "auto", "help": "auto, cpu, cuda or cuda:N (default: auto)"},
        "--kv-heads": {
            "type": count_or("auto", "all"),
            "default": "auto",
            "metavar": "N",
            "help": "key and value heads, each repeated until there are N; all: one for each query head, as without "
            "grouped-query attention",
        },
        "--adapter": {
            "action": "append",
            "dest": "adapters",
            "default": [],
            "metavar": "NAME[=FOLDER]",
            "help": f"load this adapter (LoRA, as PEFT writes it), a folder or one that ships ({ships}); may be given "
            f"several times{turns}",
        },
        "--revision": {"help": "branch, tag or commit of a model on the hub"},
        "--tensor-parallel": {
            "type": whole,
            "default": 1,
            "metavar": "N",
            "help": "split every layer over so many ranks: GPUs from --device on, or processes on a CPU",
        },
        "--sequence-parallel": {
            "action": "store_true",
            "help": "with --tensor-parallel: norms and residuals by shares of a step's rows",
        },
        "--expert-parallel": {
            "action": "store_true",
            "help": "with --tensor-parallel: each rank has some of a mixture's experts whole, not a part of each",
        },
        "--pipeline-parallel": {
            "type": whole,
            "default": 1,
            "metavar": "N",
            "help": "split the layers over so many stages: GPUs from --device on, or processes on a CPU",
        },
        "--micro-batches": {
            "type": int,
            "default": 0,
            "metavar": "N",
            "help": "with --pipeline-parallel: parts of a step's rows that go through it (default: as many as stages)",
        },
        "--trust-remote-code": {"action": "store_true", "help": "run Python code that the model brings"},
    }
    group = to if names else to.add_argument_group("the model, and where it computes")
    for name in names or options:
        group.add_argument(name, **options[name])


def engine_options(parser: argparse.ArgumentParser) -> None:
    *most, last = PAGED_MODES
    paged = f"Paged modes are {', '.join(most)} and {last}."
    to = parser.add_argument_group("batching and the KV cache", paged)
    default = EngineConfig()
    every = "continuous modes: requests join every so many steps"
    wait = "dynamic: how long a batch waits for more requests (default: 0.2)"
    held = f"static and dynamic: {' or '.join(DELIVERIES)}; batch holds all text back until the batch is done"
    anew = "paged modes: compute decode steps kernel by kernel instead of replaying captured ones"
    mixed = "paged modes: replay decode steps alone, and none with prompts"
    gaps = "19 of 20 gaps between an answer's tokens are no longer; what else a step computes is chosen for that"
    mode = f"one of {', '.join(MODES)} (default: {default.mode})"
    order = f"who of those that wait is next: {', '.join(f'{name} ({words})' for name, words in ADMISSIONS.items())}"
    running = f"requests that run at once (default: {default.max_running})"
    block = f"tokens a KV block holds (default: {default.block_size})"
    to.add_argument("--mode", default=default.mode, help=mode)
    to.add_argument("--max-running", type=int, default=default.max_running, metavar="N", help=running)
    to.add_argument("--token-budget", type=int, metavar="N", help="most tokens a step computes (default: 2048)")
    to.add_argument("--target-itl", type=float, metavar="SECONDS", help=f"chunked: {gaps} (default: none)")
    to.add_argument("--join-every", type=int, default=default.join_every, metavar="STEPS", help=every)
    to.add_argument("--longest-wait", type=float, default=default.longest_wait, metavar="SECONDS", help=wait)
    to.add_argument("--delivery", default=default.delivery, metavar="HOW", help=held)
    to.add_argument("--prefix-caching", action="store_true", help="paged modes: prompts that begin alike share blocks")
    to.add_argument("--admission", default=default.admission, metavar="ORDER", help=order)
    to.add_argument("--block-size", type=int, default=default.block_size, metavar="N", help=block)
    kv_memory_option(to)
    kv_dtype_option(to)
    forgets = "paged modes: of an answer that goes on only its last N tokens and the sinks stay in the cache"
    to.add_argument("--kv-window", type=whole, metavar="N", help=f"{forgets} (default: all)")
    sinks = f"with --kv-window: the first N tokens stay too (default: {default.kv_sinks})"
    to.add_argument("--kv-sinks", type=int, default=default.kv_sinks, metavar="N", help=sinks)
    to.add_argument("--depth", type=int, metavar="N", help="steps launched ahead: 0 or 1 (default: 1 on a GPU, else 0)")
    to.add_argument("--no-graphs", "--no-cuda-graphs", dest="cuda_graphs", action="store_false", help=anew)
    to.add_argument("--no-mixed-graphs", dest="mixed_graphs", action="store_false", help=mixed)
    ways = ", ".join(f"{name} ({words})" for name, words in SPECULATIONS.items())
    to.add_argument("--speculation", choices=SPECULATIONS, metavar="HOW", help=f"paged modes: verify drafts: {ways}")
    drafted = "drafted tokens a row, or auto: as many as are likely enough to be kept (default)"
    to.add_argument("--speculated", type=count_or("auto"), default=default.speculated, metavar="K", help=drafted)
    to.add_argument(
        "--draft",
        type=ModelSpec,
        metavar="MODEL",
        help="the model that drafts (default: the one that the model brings)",
    )
    how = f"paged modes: what becomes of who makes way where blocks run out: {', '.join(PREEMPTIONS)}"
    room = (
        "host memory for swapped requests and offloaded prefixes, e.g. 1G (default: enough for all, and four times the "
        "pool, within a quarter of what is free, on a GPU 4 GiB)"
    )
    kept = "with --prefix-caching: what the cache forgets is kept in host memory, and comes back when it is asked for"
    to.add_argument("--offload-prefixes", action="store_true", help=kept)
    to.add_argument("--preemption", default=default.preemption, metavar="HOW", help=how)
    to.add_argument("--swap-memory", type=size_in_bytes, metavar="SIZE", help=room)
    seed_option(to, "of the sampling, and of the workload")
    threads_option(to)


def count_or(*words: str) -> Callable[[str], int | str]:
    """Takes one of these words, or a whole number."""
    return lambda text: text if text in words else whole(text)


def kv_memory_option(to: Any, default: str = "what is free") -> None:
    said = f"KV pool, e.g. 512M or 4G (default: {default})"
    to.add_argument("--kv-memory", type=size_in_bytes, metavar="SIZE", help=said)


def kv_dtype_option(to: Any) -> None:
    said = "paged modes: keep K and V as int8 or fp8, a byte a value (default: auto, in the model's dtype)"
    to.add_argument("--kv-dtype", default=EngineConfig().kv_dtype, metavar="DTYPE", help=said)


def seed_option(to: Any, of: str) -> None:
    to.add_argument("--seed", type=int, metavar="N", help=f"{of} (default: the workload's own, else 0)")


def threads_option(to: Any) -> None:
    said = "torch threads on a CPU (default: the fastest, measured at load)"
    to.add_argument("--threads", type=whole, metavar="N", help=said)


def sampling_options(parser: argparse.ArgumentParser) -> None:
    """Their defaults are those of the workload; 256 tokens, temperature 0.8 and top-p 0.95 where it has none."""
    to = parser.add_argument_group("sampling", "What is not given is as the workload, or the demo's prompts, have it.")
    to.add_argument("--max-tokens", type=int, metavar="N", help="longest answer (default: 256)")
    to.add_argument("--temperature", type=float, metavar="T", help="0 is greedy (default: 0.8)")
    to.add_argument("--top-p", type=float, metavar="P", help="draw from the likeliest that sum to P (default: 0.95)")
    to.add_argument("--top-k", type=int, metavar="K", help="draw from the K likeliest (default: from all)")
    to.add_argument("--min-p", type=float, metavar="P", help="none that is less likely than P times the likeliest")
    to.add_argument("--repetition-penalty", type=float, metavar="X", help="above 1: what was said becomes less likely")
    to.add_argument("--stop", action="append", metavar="TEXT", help="end before this text; may be given several times")
    to.add_argument("--ignore-eos", action="store_true", default=None, help="go on to max tokens")
    to.add_argument("--n", type=int, metavar="N", help="samples of every prompt")
    watched = "note what each token attends to, for the panel Attention of a run that is kept"
    to.add_argument("--attention", action="store_true", default=None, help=watched)
    first = "with --admission priority: the lowest number joins first (default: 0)"
    to.add_argument("--priority", type=int, metavar="N", help=first)
    beams = "paged modes: search with so many beams, and answer with as many texts, best first"
    stopping = "true: as soon as as many texts as beams are finished; false; never: when none can become better"
    to.add_argument("--beams", dest="beam_width", type=int, metavar="N", help=beams)
    to.add_argument("--length-penalty", type=float, metavar="P", help="a beam's score is its sum over length to this")
    to.add_argument("--early-stopping", type=early_stopping, metavar="WHEN", help=stopping)
    taken = "taken from a token's logit for each time that the answer has it"
    to.add_argument("--frequency-penalty", type=float, metavar="X", help=taken)
    to.add_argument("--presence-penalty", type=float, metavar="X", help="taken once, where the answer has it at all")
    to.add_argument("--min-tokens", type=int, metavar="N", help="so many tokens before any end")
    to.add_argument("--logit-bias", action="append", type=bias, metavar="ID=X", help="added to a token's logit")
    to.add_argument("--bad-word", action="append", dest="bad_words", metavar="TEXT", help="never say this")
    to.add_argument("--regex", metavar="PATTERN", help="answers match this regular expression, all of them")
    to.add_argument("--choices", type=listed, metavar="A,B,...", help="each answer is one of these texts")
    schema = f"each answer is JSON to the schema in FILE, or to one that is shipped ({', '.join(SCHEMAS)})"
    to.add_argument("--json-schema", type=json_schema, metavar="FILE", help=schema)


def workload_options(parser: argparse.ArgumentParser, default: str | None) -> None:
    to = parser.add_argument_group("the workload")
    names = ", ".join(card.name for card in list_workloads())
    said = f"one of {names}, or a .toml, .txt, .jsonl (Mooncake's too) or ShareGPT .json file"
    said += f" (default: {default})" if default else ""
    to.add_argument("--workload", metavar="NAME|FILE", default=default, help=said)
    to.add_argument("--count", type=whole, metavar="N", help="so many requests of the workload")
    to.add_argument("--arrivals", metavar="KIND", help=f"when they come in: {', '.join(ARRIVALS)}")
    to.add_argument("--rate", type=float, metavar="R", help="requests a second")
    to.add_argument("--burstiness", type=float, metavar="B", help="of gamma arrivals; 1 is Poisson, less: bursts")
    to.add_argument("--concurrency", type=int, metavar="N", help="at most N requests open at once")


def slo_options(parser: argparse.ArgumentParser) -> None:
    to = parser.add_argument_group("limits, for goodput")
    limits = {"ttft": "time to first token", "tpot": "time per output token"}
    limits |= {"itl": "99th percentile of gaps", "e2e": "time to the last token"}
    for name, what in limits.items():
        to.add_argument(f"--slo-{name}", type=float, metavar="SECONDS", help=f"a request's longest {what}")


PRICE = "of an hour of what computes, in any currency: what a million output tokens cost is told then"


def price_option(to: argparse.ArgumentParser, what: str = PRICE) -> None:
    to.add_argument("--price", type=float, default=0.0, metavar="P", help=what)


def price_of(options: argparse.Namespace) -> float:
    price: float = options.price
    if not 0 <= price < inf:
        raise InvalidInput(f"price={price:g}: it is of an hour, a number of at least 0")
    return price


def output_options(to: argparse.ArgumentParser) -> None:
    forms = to.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print everything as JSON")
    forms.add_argument("--csv", action="store_true", help="print the table as CSV")
    forms.add_argument("--markdown", action="store_true", help="print the table as Markdown")


# What the options stand for. Each raises InvalidInput.


def spec_of(options: argparse.Namespace) -> ModelSpec:
    return ModelSpec(
        *(options.model, options.quantization, options.dtype, options.device, options.revision),
        *(options.trust_remote_code, parallel_of(options), options.kv_heads),
        adapters_of(options),
    )


def adapters_of(options: argparse.Namespace) -> tuple[str, ...]:
    """Those that are to be loaded."""
    return tuple(each for each in options.adapters if each != NO_ADAPTER)


def parallel_of(options: argparse.Namespace) -> Parallel:
    return Parallel(
        options.tensor_parallel,
        sequence=options.sequence_parallel,
        pipeline=options.pipeline_parallel,
        micro_batches=options.micro_batches,
        experts=options.expert_parallel,
    )


def config_of(options: argparse.Namespace) -> EngineConfig:
    given = {field.name: getattr(options, field.name) for field in fields(EngineConfig) if field.name in options}
    budget = options.token_budget or max(EngineConfig().token_budget, options.max_running)
    return EngineConfig(**(given | {"token_budget": budget, "seed": options.seed or 0}))


def sampling_of(options: argparse.Namespace, base: SamplingParams | None = None) -> SamplingParams:
    """`base` (or the command line's own defaults) with what was given."""
    given = {field.name: getattr(options, field.name, None) for field in fields(SamplingParams) if field.name != "seed"}
    given = {name: value for name, value in given.items() if value is not None}
    if given.keys() & {"regex", "choices", "json_schema"}:  # which ends the text itself, whatever the workload says
        given = {"ignore_eos": False, "regex": None, "choices": (), "json_schema": None} | given
    return (base or SamplingParams(temperature=0.8, top_p=0.95)).with_(**given)


def sampled(workload: Workload, options: argparse.Namespace) -> Workload:
    """The workload, each prompt sampled as it says itself but for what the command line says."""
    arrivals = (replace(arrival, params=sampling_of(options, arrival.params)) for arrival in workload.arrivals)
    return in_turn(replace(workload, arrivals=tuple(arrivals)), options)


def in_turn(workload: Workload, options: argparse.Namespace) -> Workload:
    """Its requests through the adapters of the command line, where they name none."""
    return workload.through(["" if each == NO_ADAPTER else adapter_name(each) for each in options.adapters])


def slo_of(options: argparse.Namespace) -> Slo:
    return Slo(options.slo_ttft, options.slo_tpot, options.slo_itl, options.slo_e2e)


def workload_of(options: argparse.Namespace, spec: ModelSpec) -> Workload:
    """The workload, its prompts as long as `spec`'s tokenizer makes them."""
    need_engine()
    given = {name: getattr(options, name) for name in ("seed", *OF_WORKLOADS)}
    chat = False if getattr(options, "raw", False) else None
    return load_workload(options.workload, model_folder=spec.source, chat=chat, **given)


def refuse_workload_options(options: argparse.Namespace) -> None:
    """For a command that plays no workload."""
    for name in OF_WORKLOADS:
        value = getattr(options, name)
        if value is not None:
            raise InvalidInput(f"--{name} {value}: is of a workload; give --workload too, which also takes a .txt file")


def need_engine() -> None:
    """Raises InvalidInput where none is installed."""
    if words := engine_missing():
        raise InvalidInput(words)


def check_model(spec: ModelSpec) -> None:
    """Looks at a model that is on this machine, and at its adapters, before anything is loaded. A hub id is left to the
    load."""
    need_engine()
    path = Path(spec.source).expanduser()
    if spec.source in SHIPPED or path.exists() or path.is_absolute() or "/" not in spec.source:
        inspect_model(spec)
    for adapter in spec.adapters:
        inspect_adapter(adapter)


def quiet(options: argparse.Namespace) -> bool:
    """Whether what is printed is for a program."""
    return any(getattr(options, form, False) for form in ("json", "csv", "markdown"))


def has_display() -> bool:
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
