"""A run's model, machine and settings in words, and its requests."""

from collections.abc import Iterator
from dataclasses import fields

from engine.compare import lane_sentence
from engine.config import EngineConfig
from engine.export.source import Source, lane_of
from engine.trace import Header, RequestView, Trace, bytes_text, parameters_text, request_metrics
from engine.trace.measures.slo import seconds_text


def headline(trace: Trace) -> str:
    """ "stories-5m · float32 · AMD EPYC, 2 threads"."""
    header = trace.header
    machine = header.machine
    where = machine.gpu if header.model.device.startswith("cuda") else f"{machine.cpu}, {threads(header)}"
    held = (
        header.model.dtype
        if header.model.quantization == "none"
        else f"{header.model.quantization}, {header.model.dtype}"
    )
    return " · ".join((header.model.name, held, where))


def threads(header: Header) -> str:
    count = header.machine.threads
    return f"{count} thread{'s' if count != 1 else ''}"


def model_facts(header: Header) -> Iterator[tuple[str, str]]:
    model = header.model
    yield "model", f"{model.name} ({model.source}), {model.architecture}"
    kv_heads = f"{model.kv_heads} of K and V"
    if model.latent:
        kv_heads = "which share a latent"
    elif model.kv_heads_stored:
        kv_heads += f", each of the checkpoint's {model.kv_heads_stored} repeated"
    yield (
        "shape",
        f"{parameters_text(model.parameters)} parameters, {model.layers} layers of {model.hidden}, {model.heads} heads "
        f"({kv_heads}) of {model.head_dim}, {model.vocabulary:,} tokens, context {model.context:,}",
    )
    quantized = "" if model.quantization == "none" else f", {model.quantization}"
    yield "weights", f"{bytes_text(model.weight_bytes)} in {model.dtype}{quantized}"
    if model.adapters:
        each = ", ".join(f"{name} (rank {rank})" for name, rank in zip(model.adapters, model.adapter_ranks))
        yield "adapters", f"{each}: {bytes_text(model.adapter_bytes)} of the weights"
    if header.draft is not None:
        yield "draft model", f"{header.draft.name}, {bytes_text(header.draft.weight_bytes)}"


def machine_facts(header: Header) -> Iterator[tuple[str, str]]:
    machine = header.machine
    yield "processor", f"{machine.cpu}, {machine.cores} cores, {threads(header)} used"
    yield "memory", bytes_text(machine.memory)
    if machine.gpu:
        yield "GPU", f"{machine.gpu}, {bytes_text(machine.gpu_memory)}"
    if machine.kernels:
        yield "kernels", machine.kernels
    yield "software", ", ".join(f"{name} {version}" for name, version in header.versions.items())


def setting_facts(header: Header) -> Iterator[tuple[str, str]]:
    """The mode in plain words, the pool, and what is not as it is by default."""
    config = header.config
    yield "mode", f"{config.mode}: {lane_sentence(lane_of(header))}"
    tokens = header.blocks * config.block_size
    size = bytes_text(tokens * header.kv_token_bytes)
    yield "KV memory", f"{size}: {header.blocks:,} blocks of {config.block_size} tokens, {tokens:,} tokens"
    told = [
        f"{field.name}={value!r}"
        for field in fields(EngineConfig)
        if field.name not in ("mode", "kv_memory")
        and (value := getattr(config, field.name)) != getattr(EngineConfig(), field.name)
    ]
    yield "other settings", ", ".join(told) or "as they are by default"


def request_words(view: RequestView) -> str:
    """What a pointer is told of a request."""
    told = request_metrics(view)
    times = (("TTFT", told.ttft), ("TPOT", told.tpot), ("E2E", told.e2e))
    said = [f"{told.prompt_tokens:,} tokens in, {told.output_tokens:,} out"]
    said += [f"through the adapter {view.params.adapter}"] if view.params.adapter else []
    said += [", ".join(f"{name} {seconds_text(value)}" for name, value in times if value is not None)]
    return "\n".join([*filter(None, said), f"“{prompt_words(view, 90)}”"])


def prompt_words(view: RequestView, longest: int) -> str:
    """What was asked, on one line."""
    asked = view.messages[-1]["content"] if view.messages else view.prompt
    words = " ".join((view.label or asked).split())
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def workload_words(source: Source) -> str:
    """ "32 requests", "32 requests through 3 lanes, 2 times each", "64 requests in 2 runs"."""
    if source.race is None:
        prompts = sum(len(run.trace.requests) for run in source.runs)
        where = "" if source.alone else f" in {len(source.runs)} runs"
    else:
        prompts, where = len(source.race.workload), f" through {len(source.names)} lanes"
    repeats = 1 + max(run.repeat for run in source.runs)
    often = f", {repeats} times each" if repeats > 1 else ""
    return f"{prompts:,} request{'s' if prompts != 1 else ''}{where}{often}"
