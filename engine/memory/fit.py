"""Whether a model fits, before any weight is read: the bill of each quantization, from config and headers alone. No
torch."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from engine.checkpoints.adapters import AdapterInfo, adapter_bytes
from engine.checkpoints.catalog import local_info
from engine.checkpoints.hub import hub_info
from engine.checkpoints.info import TORCH_BYTES, ModelInfo
from engine.checkpoints.inspect import inspect_model, resolve, shipped_awq
from engine.config.parallel import check_dividing
from engine.config.schemes import SCHEMES, STORED, missing
from engine.config.specs import EngineConfig, InvalidInput, ModelSpec
from engine.kernels.cpu.compiler import compiles_here
from engine.memory.rules import bucket_sizes, gpu_needs, mixed_sizes, pool_share, pool_size, step_bytes
from engine.memory.splitting import rank_counts, why_whole
from engine.memory.weight_bytes import (
    awq_stays_packed,
    experts_multiply,
    group_of,
    held_as,
    held_bytes,
    part_bytes,
    quantizes_experts,
)

USUAL = EngineConfig()


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """A device and its memory: `kind` is "cpu" or "cuda", `free` and `total` are bytes; whether a GPU drives a
    `display`. `runtime`: bytes that driver and libraries take of a GPU besides, before a model has any."""

    kind: str
    free: int
    total: int
    display: bool = False
    runtime: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """The bill of one way to load a model, in bytes. `dtype` is that of all that is not quantized and of the KV cache,
    unless another was asked for.

    `pool` is what the engine would give its KV cache, `tokens` how many it holds, `states` what layers that keep a
    state keep of one request, `all_states` of all that may run. `available`: "" or why this
    quantization cannot be chosen here (library, checkpoint, device), with the remedy. `fits`: weights, activations and
    a smallest pool (one block) are within what is free. `devices`: over how many devices with such a memory the model
    would have to be split, where it does not fit on one; 0 where that does not help.
    """

    quantization: str
    dtype: str
    weights: int
    kv_token: int
    activations: int
    pool: int
    tokens: int
    fits: bool
    available: str = ""
    note: str = ""
    devices: int = 0
    states: int = 0
    all_states: int = 0

    def requests(self, length: int) -> int:
        """How many requests of `length` tokens the pool holds at once."""
        return self.tokens // length if length > 0 else 0


def fits(
    info: ModelInfo,
    memory: DeviceMemory,
    *,
    dtype: str = "auto",
    quantizations: Sequence[str] | None = None,
    max_running: int = USUAL.max_running,
    token_budget: int = USUAL.token_budget,
    kv_dtype: str = USUAL.kv_dtype,
    ranks: int = 1,
    adapters: Sequence[AdapterInfo] = (),
) -> list[Fit]:
    """The bill of each quantization (all by default), in the order of `SCHEMES`, those that cannot be chosen
    included; of experts alone where there are any, and with the `adapters` among the weights. With several `ranks` that
    of one of so many devices, each with such a `memory`. Raises InvalidInput where the model's heads do not divide by
    them."""
    check_dividing(ranks, {"attention heads": info.heads, "key and value heads": info.kv_heads})
    how = max_running, token_budget, kv_dtype
    wanted = SCHEMES if quantizations is None else quantizations
    names = [name for name in SCHEMES if name in wanted and (info.experts or not SCHEMES[name].experts_only)]
    bills = [_fit(info, memory, name, dtype, *how, adapters, ranks) for name in names]
    return (
        bills if ranks > 1 else [replace(bill, devices=_devices(info, memory, bill, *how, adapters)) for bill in bills]
    )


def _devices(
    info: ModelInfo,
    memory: DeviceMemory,
    bill: Fit,
    slots: int,
    budget: int,
    kv_dtype: str,
    adapters: Sequence[AdapterInfo],
) -> int:
    """`Fit.devices` of a bill. On a CPU all ranks have one memory, and splitting gains no room."""
    if bill.fits or bill.available or memory.kind != "cuda" or why_whole(info, bill.quantization):
        return 0
    how = bill.quantization, bill.dtype, slots, budget, kv_dtype, adapters
    both = (rank_counts(info, bill.quantization, whole) for whole in (False, True))
    return next((n for n in sorted(set().union(*both) - {1}) if _fit(info, memory, *how, n).fits), 0)


def model_info(spec: ModelSpec) -> ModelInfo:
    """A model's facts wherever it lies; of one on the hub its config and headers are fetched, or taken from the cache
    where the hub does not answer. Blocks. Raises InvalidInput."""
    if resolve(spec) is not None:
        return inspect_model(spec)
    try:
        return hub_info(spec.source, spec.revision, spec.kv_heads)
    except InvalidInput as error:
        with suppress(InvalidInput):
            return local_info(spec)
        raise error


def load_dtype(info: ModelInfo, quantization: str, kind: str, dtype: str = "auto") -> str:
    """What "auto" means: the checkpoint's own on a GPU; on a CPU float32, in which every batching mode says the same,
    or with quantized weights bfloat16: what is not quantized should not take more memory than they save."""
    if dtype != "auto":
        return dtype
    if kind == "cuda":
        return info.dtype
    return "float32" if quantization == "none" and not info.stored_as else "bfloat16"


def simple_kv(info: ModelInfo, item: int, length: int, batch: int) -> int:
    """KV bytes by the rule of thumb 2 · bytes · layers · d_model · length · batch, which takes every head to have keys
    and values of its own: grouped-query attention needs kv_heads / heads of it."""
    return 2 * item * info.layers * info.hidden * length * batch


def _graph_needs(info: ModelInfo, slots: int, rows: int, budget: int, shape: tuple[int, ...]) -> int:
    """`gpu_needs` on the fastest GPU, which captures the most steps."""
    mixed = mixed_sizes(budget, info.layers, sum(inputs * outputs for inputs, outputs in info.linears))
    step = max(step_bytes(tokens, min(rows, tokens), *shape) for tokens in (rows, *mixed[-1:]))
    return gpu_needs(slots, info.layers, info.vocabulary, step, len(mixed) + len(bucket_sizes(slots)))


def _fit(
    info: ModelInfo,
    memory: DeviceMemory,
    name: str,
    dtype: str,
    slots: int,
    token_budget: int,
    kv_dtype: str,
    adapters: Sequence[AdapterInfo],
    ranks: int,
) -> Fit:
    available, note = _available(info, name), ""
    ships = name == "awq" and info.stored_as != "awq" and not info.kv_heads_stored
    if ships and (shipped := shipped_awq(info)) is not None:
        info, available = shipped, ""
    kind = load_dtype(info, name, memory.kind, dtype)
    item = TORCH_BYTES[kind]
    held = held_as(info, name)
    weights = held_bytes(info, held, kind, memory.kind) + adapter_bytes(adapters, item)
    if held in STORED and (info.stored_as or held == "awq"):
        told = f"this checkpoint is {SCHEMES[held].title}, and is loaded as such" if name == "none" else ""
        note = "; ".join(filter(None, (told, _awq_note(info, kind, memory.kind) if held == "awq" else "")))
    elif info.experts and name != "none" and not quantizes_experts(info, name):
        share = info.experts / max(info.parameters, 1)
        note = f"the experts, {share:.0%} of the weights, stay in {kind}: only the other layers are quantized"
    kv_token = info.kv_token_bytes(kind, kv_dtype)
    if ranks > 1:
        weights, kv_token = part_bytes(weights, info.vocabulary * info.hidden * item, ranks), kv_token // ranks
    block = USUAL.block_size
    rows = max(1, min(slots, token_budget))
    length = max(1, min(token_budget // rows, info.context or token_budget))
    shape = info.hidden, info.head_dim, info.mlp, info.vocabulary, item
    activations = step_bytes(rows * length, rows, *shape)
    needed = activations + _graph_needs(info, slots, rows, token_budget, shape)
    share = pool_share(max(0, memory.free - weights), memory.kind, needed, memory.display)
    states = info.states.bytes(item)
    blocks = pool_size(share - states * slots, max(1, kv_token * block), slots, info.context, block)
    return Fit(
        quantization=name,
        dtype=kind,
        weights=weights,
        kv_token=kv_token,
        activations=activations,
        pool=blocks * block * kv_token,
        tokens=blocks * block,
        fits=blocks > 0 and weights + activations + states * slots + block * kv_token <= memory.free,
        available=available,
        note=note,
        states=states,
        all_states=states * slots,
    )


def _awq_note(info: ModelInfo, dtype: str, kind: str) -> str:
    """What is to be said where AWQ layers do not stay packed."""
    group = group_of(info)
    each = {inputs for inputs, _ in info.linears}
    dense = [inputs for inputs in each if not awq_stays_packed(inputs, group, dtype, kind)]
    slow = any(not experts_multiply(inputs, group, dtype, kind) for inputs, _, _ in info.expert_matrices)
    if slow:
        return "no kernel here multiplies its experts' codes: they are unpacked at each step, slowly"
    if not dense:
        return ""
    where = "on a GPU" if kind == "cuda" else "on a CPU" if compiles_here() else "on a CPU where no C compiler is"
    why = dtype if len(dense) == len(each) and dtype != "bfloat16" else f"groups of {group}"
    return f"with {why} {where} the weights are unpacked once at load, and no memory is saved"


def _available(info: ModelInfo, name: str) -> str:
    stored = info.quantized
    if stored is not None and not info.stored_as:
        return f"this checkpoint is quantized with {stored.method}, which is not read here: choose the original"
    if stored is not None and stored.problem:
        return stored.problem
    if name == "none":
        return ""
    if stored is not None and name != stored.method:
        return f"this checkpoint is {SCHEMES[stored.method].title} already: nothing to quantize"
    if name == "awq" and info.kv_heads_stored:
        return "the heads of packed weights cannot be repeated: leave kv_heads as the model has them"
    if name == "awq" and stored is None and info.experts:
        return "autoawq makes none of a mixture of experts: int8 and nf4 quantize it while it loads"
    if name == "awq" and stored is None and info.states.layers:
        return "autoawq makes none of layers that keep a state: int8 and nf4 quantize it while it loads"
    if name == "awq" and stored is None and info.latent:
        return "autoawq makes none of latent attention: int8 and nf4 quantize it while it loads"
    if name == "awq":
        return "" if info.stored_as == "awq" else "no AWQ checkpoint: make one with batchscope quantize"
    if name == "mxfp4" and not quantizes_experts(info, name):
        return "it is of a mixture's experts, and none here can be held so: choose nf4"
    if name == "torchao-int8" and info.conv1d:
        return f"torchao does not convert the layers of {info.model_type}: choose int8"
    return missing(name)
