"""The records of a trace: immutable, complete, and all that any view knows. Times are seconds from the trace's start.

A `Step` holds columns, not row objects. Arrays are read-only: `freeze` them before they are shared.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np

from engine.config.specs import EngineConfig, Message, SamplingParams
from engine.trace.column import Array

VERSION = 4


class Kind(IntEnum):
    """What a row of a step computes. HELD: a finished row of a static batch, computed until the longest ends."""

    PREFILL = 0
    DECODE = 1
    HELD = 2


class Refusal(StrEnum):
    """Why the head of the queue did not join a step."""

    NO_SLOT = "no slot"
    NO_BLOCKS = "no blocks"
    BUDGET = "budget spent"
    DECODE_TURN = "decodes' turn"
    JOIN_TURN = "joins wait for their step"
    BATCH_FILLS = "the batch is not full"
    BATCH_RUNS = "the batch is not over"
    PROMPT_RUNS = "its prompt is still computed"


class BlockEvent(IntEnum):
    """What happened to a block. TAKEN: from the free ones, or from the cached ones, whose prefix is then forgotten.
    SHARED: one more owner, of an owned or a cached block. LEFT: an owner went, others stay. KEPT: the last owner went
    and the block stays cached for its prefix. FREED: the last owner went; without an owner, what was cached is lost."""

    TAKEN = 0
    SHARED = 1
    LEFT = 2
    KEPT = 3
    FREED = 4


class Fate(IntEnum):
    """What became of a candidate of a beam search. FINISHED: it ended, and was among the best that did."""

    PRUNED = 0
    LIVE = 1
    FINISHED = 2


class SwapEvent(IntEnum):
    """What happened to a block of host memory. OUT: it got a preempted branch's K and V. IN: they went back to the pool
    as the branch was admitted. DROPPED: it was given back without."""

    OUT = 0
    IN = 1
    DROPPED = 2


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


def freeze(array: Array) -> Array:
    """The same array, closed to writing."""
    array.flags.writeable = False
    return array


EMPTY: dict[type, Array] = {dtype: freeze(np.empty(0, dtype)) for dtype in (np.int32, np.uint8, np.float32)}


def _ints(dtype: type) -> Any:
    return field(default_factory=lambda: EMPTY[dtype])  # most columns of most steps


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The loaded model: geometry, and bytes of its weights and of one token's K and V over all layers.

    What a step costs is counted from: `body_parameters`, the weights that the layers multiply tokens with, all experts
    counted; `expert_parameters`, those of them that belong to experts, of whom a token is sent to `active_experts` of
    `experts`; `head_parameters`, of the output layer; `bytes_per_weight`, as the body is stored; `windows`, each
    layer's sliding window in tokens, 0 for none. All are 0 or empty where nobody counted. `stretched`: the context that
    LongRoPE is said to reach, where `context` ends with its short factors. `kv_dtype`: that of K and V, "" where it is
    `dtype`. `kv_layers`: layers with K and V of their own, which others may read too; 0 where nobody counted.
    """

    name: str
    source: str
    architecture: str
    parameters: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocabulary: int
    context: int
    dtype: str
    device: str
    quantization: str
    weight_bytes: int
    kv_token_bytes: int
    chat: bool
    load_seconds: float = 0.0
    body_parameters: int = 0
    expert_parameters: int = 0
    experts: int = 0
    active_experts: int = 0
    head_parameters: int = 0
    bytes_per_weight: float = 0.0
    windows: tuple[int, ...] = ()
    stretched: int = 0
    kv_dtype: str = ""
    kv_layers: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the run was made. `memory` and `gpu_memory` in bytes; `threads` as torch used them, and why so many;
    `kernels`: on a CPU, what computes beside the matrix products, in words."""

    cpu: str
    cores: int
    memory: int
    threads: int
    gpu: str = ""
    gpu_memory: int = 0
    threads_why: str = ""
    kernels: str = ""


@dataclass(frozen=True, slots=True)
class Roof:
    """The most that the device can do, measured at load. `bandwidths[i]`: bytes a second that a copy of a working set
    of `working_sets[i]` bytes reads and writes, from the smallest set to the largest; `operations`: floating-point
    operations a second of matrix products in the model's dtype. `seconds`: how long measuring took."""

    working_sets: tuple[int, ...]
    bandwidths: tuple[float, ...]
    operations: float
    seconds: float = 0.0

    def bandwidth_at(self, working_set: float) -> float:
        """Bytes a second at a working set of so many bytes: between two that were measured in proportion to the
        logarithm of their size, and beyond them as at the nearest."""
        return float(np.interp(np.log(max(working_set, 1.0)), np.log(self.working_sets), self.bandwidths))


@dataclass(frozen=True, slots=True)
class MemoryBreakdown:
    """Where the device's memory goes after load and warm-up, in bytes that add up to `total`.

    `activations`: the most that a step at the token budget took beyond weights and pool; `graphs`: what captured CUDA
    graphs hold; `runtime`: what this process holds besides; `other`: other processes; `draft`: a draft model's weights.
    """

    total: int
    weights: int
    kv_pool: int
    activations: int
    runtime: int
    other: int
    free: int
    graphs: int = 0
    draft: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """The first record. `created` is Unix time in seconds; `blocks` is the KV pool's size. `graphs` are the numbers of
    rows for which a decode step was captured, as a CUDA graph or, on a CPU, as one program; `graphs_off` why there are
    none. `mixed_graphs` are the numbers of tokens for which a step with prompts was captured (on a CPU the most of a
    run, of which a step may have several); `mixed_off` why there are none. `draft` is the model that drafts, whose K
    and V lie in the same blocks. `host_blocks`: blocks of host memory that preempted requests' K and V are copied to;
    `swap_rate`: bytes a second of such a copy, as measured at load, 0 where nobody did."""

    model: ModelCard
    config: EngineConfig
    machine: Machine
    versions: dict[str, str]
    created: float
    blocks: int
    depth: int
    roof: Roof | None = None
    bill: MemoryBreakdown | None = None
    graphs: tuple[int, ...] = ()
    graphs_off: str = ""
    mixed_graphs: tuple[int, ...] = ()
    mixed_off: str = ""
    draft: ModelCard | None = None
    version: int = VERSION
    host_blocks: int = 0
    swap_rate: float = 0.0

    @property
    def kv_token_bytes(self) -> int:
        """Of one token's K and V, the model's and the draft's."""
        return self.model.kv_token_bytes + (self.draft.kv_token_bytes if self.draft is not None else 0)


@dataclass(frozen=True, slots=True)
class Submitted:
    """A request came in. `text` is the prompt as the model sees it; `messages` is set when it was a chat."""

    time: float
    request: int
    text: str
    token_ids: Array
    params: SamplingParams
    messages: tuple[Message, ...] = ()
    label: str = ""


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step was launched: so many rows, so many tokens. Says what is under way before its `Step` is there."""

    time: float
    step: int
    rows: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Step:
    """One committed step, in columns.

    Rows `[rows]`: `request`, `branch`, `slot`, `first` (position of the row's first token), `count` (tokens computed),
    `kind`, `wasted` (of `count`: computed and thrown away, by held rows, rows past a stop and recomputation),
    `padding` (pad tokens that were computed beside `count`), `reused` (tokens before `first` that need no computing, on
    a branch's first row: their K and V were there, of a prefix that was kept or of another sample's prompt). What the
    model was given is the sum of `count + padding`. Emitted tokens, in row order: `token_row` (index of the row),
    `token`, `logprob` (natural log, of the model's own distribution), and `text_end`, where each token's part of `text`
    ends; a token's part may be empty while a character or a stop string is held back. Alternatives, for rows that
    asked, likeliest first: `alt_token_index` (index into `token`), `alt_token`, `alt_logprob`, `alt_text`. Of
    tokens that were held to a grammar: `allowed_token_index` (index into `token`) and how many tokens were `allowed`;
    and where the likeliest of all was not, what the model would rather have said: `rather_token_index`,
    `rather_token`, `rather_logprob`, `rather_text`.

    What happened to blocks since the last record, in order: `block_event` (`BlockEvent`), `block`, `block_request` and
    `block_branch` (the owner that came or went; -1 where there was none), `block_place` (the block's place in that
    owner's block table). At depth 1 that includes what the next step took. `copied` and `copied_to` are pairs of
    copy-on-write. Refused requests with a reason each. `preempted` requests and `preempted_branch`, which of their
    samples. Likewise in order of what happened to blocks of host memory: `swap_event` (`SwapEvent`), `swap_host`,
    `swap_block` (the pool's block that was copied from or to, -1 where nothing was), `swap_request`, `swap_branch` and
    `swap_place`. A preempted sample none of whose blocks went out computes them again.

    Of speculation, empty where nothing was drafted: `drafted` and `accepted` `[rows]`, how many tokens were proposed
    and computed with a row's own, and how many of them were kept: the first of the row's emitted tokens. `draft_token`
    and `draft_text` are those proposed, in row order.

    `seconds` a phase: plan, draft, prepare, forward, sample, wait, commit, record; launched at `started` one after
    another up to sample, and read back with wait and commit up to `ended`. `attention`: those of `forward` that were
    spent in attention; 0 where that is not known, as on a GPU, which the host only launches. `swapping`: those of
    `prepare` in which blocks were copied out and in; on a GPU only asked for. `graph`: the size of the
    graph that was replayed, 0 where none was: its rows where all rows decode, those of the step and dummies; otherwise
    its tokens, those of the step and padding that belongs to no row. `device`: seconds of the step by the GPU's own
    clock, 0 without one. Beam searches' candidates, the best of each first: `beam_request`, `beam_parent` (the branch
    whose path it continues), `beam_branch` (that at which it goes on, -1 where it does not), `beam_token` with its text
    in `beam_text`, `beam_score` (sum of its path's log-probabilities) and `beam_fate` (`Fate`).
    `running`, `waiting` count branches after the step; `free_blocks` and `cached_blocks` likewise. The pool's tokens
    of four kinds: `kv_used`; `kv_reserved` (not used yet, still reachable under max_tokens); `kv_internal` (held,
    never reachable); `kv_external` (free, but of no use to the head of the queue, which was refused for want of more).
    """

    step: int
    started: float
    ended: float
    request: Array
    branch: Array
    slot: Array
    first: Array
    count: Array
    kind: Array
    wasted: Array
    token_row: Array
    token: Array
    logprob: Array
    text: str
    text_end: Array
    running: int
    waiting: int
    free_blocks: int
    seconds: dict[str, float]
    preempted: Array = _ints(np.int32)
    refused: Array = _ints(np.int32)
    refused_reason: tuple[str, ...] = ()
    alt_token_index: Array = _ints(np.int32)
    alt_token: Array = _ints(np.int32)
    alt_logprob: Array = _ints(np.float32)
    alt_text: tuple[str, ...] = ()
    preempted_branch: Array = _ints(np.int32)
    padding: Array = _ints(np.int32)
    reused: Array = _ints(np.int32)
    block_event: Array = _ints(np.uint8)
    block: Array = _ints(np.int32)
    block_request: Array = _ints(np.int32)
    block_branch: Array = _ints(np.int32)
    block_place: Array = _ints(np.int32)
    copied: Array = _ints(np.int32)
    copied_to: Array = _ints(np.int32)
    cached_blocks: int = 0
    kv_used: int = 0
    kv_reserved: int = 0
    kv_internal: int = 0
    kv_external: int = 0
    attention: float = 0.0
    graph: int = 0
    device: float = 0.0
    drafted: Array = _ints(np.int32)
    accepted: Array = _ints(np.int32)
    draft_token: Array = _ints(np.int32)
    draft_text: tuple[str, ...] = ()
    beam_request: Array = _ints(np.int32)
    beam_parent: Array = _ints(np.int32)
    beam_branch: Array = _ints(np.int32)
    beam_token: Array = _ints(np.int32)
    beam_score: Array = _ints(np.float32)
    beam_fate: Array = _ints(np.uint8)
    beam_text: tuple[str, ...] = ()
    allowed_token_index: Array = _ints(np.int32)
    allowed: Array = _ints(np.int32)
    rather_token_index: Array = _ints(np.int32)
    rather_token: Array = _ints(np.int32)
    rather_logprob: Array = _ints(np.float32)
    rather_text: tuple[str, ...] = ()
    swap_event: Array = _ints(np.uint8)
    swap_host: Array = _ints(np.int32)
    swap_block: Array = _ints(np.int32)
    swap_request: Array = _ints(np.int32)
    swap_branch: Array = _ints(np.int32)
    swap_place: Array = _ints(np.int32)
    swapping: float = 0.0

    @property
    def rows(self) -> int:
        return len(self.request)

    @property
    def stays(self) -> Array:
        """Of how many of each row's tokens K and V count from then on: all but the drafted ones that were rejected."""
        return self.count - (self.drafted - self.accepted) if len(self.drafted) else self.count

    @property
    def swapped_out(self) -> set[tuple[int, int]]:
        """The samples (request, branch) whose blocks went to host memory."""
        out = self.swap_event == SwapEvent.OUT
        return set(zip(self.swap_request[out].tolist(), self.swap_branch[out].tolist())) if len(out) else set()


@dataclass(frozen=True, slots=True)
class Ended:
    """A branch is over; a request is when each of its `params.branches` branches is.

    `text` is what was still held back (the tail of a cut character, or a started stop string); `token`, `logprob` and
    `text_end` are the tokens of a batch that would have delivered them later, or those of a beam search that were not
    certain before. What follows the last `text_end` belongs to the branch's last token. `score`: a beam search's result
    has one, the sum of its log-probabilities over its length to the power of the length penalty.
    """

    time: float
    request: int
    reason: FinishReason
    text: str = ""
    error: str = ""
    branch: int = 0
    token: Array = _ints(np.int32)
    logprob: Array = _ints(np.float32)
    text_end: Array = _ints(np.int32)
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What the machine does, about twice a second. Percents are 0-100 a core (CPU) or a card (GPU); memory in bytes.
    `memory` is what this process holds, `memory_free` what any process could still take."""

    time: float
    cpu_percent: float
    memory: int
    memory_total: int
    gpu_percent: float = -1.0
    gpu_memory: int = 0
    gpu_memory_total: int = 0
    gpu_watts: float = 0.0
    gpu_celsius: float = 0.0
    memory_free: int = 0


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know. `level` is "info", "warning" or "error"."""

    time: float
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Steered:
    """The budget of the steps planned from here on was set by a person; `LiveBudget` tells what the values mean."""

    time: float
    token_budget: int
    max_running: int
    prefill_share: float


@dataclass(frozen=True, slots=True)
class PromptScored:
    """How likely the model found a prompt whose request asked for it, once all of it was computed.

    `token` `[tokens]` are the prompt's, and `text_end` `[tokens]` says where each one's part of `text` ends. Of all but
    the first: `logprob` `[tokens - 1]` (natural log, given those before it), and the likeliest `alternatives` there,
    `alt_token` and `alt_logprob` `[(tokens - 1) * alternatives]`.
    """

    time: float
    request: int
    token: Array
    logprob: Array
    alternatives: int
    alt_token: Array
    alt_logprob: Array
    text: str
    text_end: Array


Record = Header | Submitted | StepStarted | Step | Ended | Telemetry | Notice | Steered | PromptScored
_KINDS: dict[str, type] = {
    t.__name__: t for t in (Header, Submitted, StepStarted, Step, Ended, Telemetry, Notice, Steered, PromptScored)
}
_NESTED: dict[str, type] = {"model": ModelCard, "config": EngineConfig, "machine": Machine, "params": SamplingParams}
_NESTED |= {"draft": ModelCard, "roof": Roof, "bill": MemoryBreakdown}


def encode(record: Record) -> tuple[str, bytes]:
    """A record's kind and bytes: a line of JSON, then its arrays one after another. `decode` is its inverse."""
    scalars: dict[str, Any] = {}
    arrays: list[bytes] = []
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, np.ndarray):
            scalars[f.name] = [value.dtype.str, len(value)]
            arrays.append(value.tobytes())
        elif f.name in _NESTED and value is not None:
            scalars[f.name] = asdict(value)
        else:
            scalars[f.name] = value
    head = json.dumps(scalars, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return type(record).__name__, b"\n".join((head, b"".join(arrays)))


def decode(kind: str, data: bytes) -> Record:
    """The record that `encode` wrote. Raises ValueError when the bytes are no record of this version."""
    try:
        cls = _KINDS[kind]
        end = data.index(b"\n")
        values = json.loads(data[:end].decode("utf-8", "surrogatepass"))
        at = end + 1
        for f in fields(cls):
            if f.name not in values:
                continue
            value = values[f.name]
            if f.name in _NESTED and value is not None:
                value = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
                values[f.name] = _NESTED[f.name](**value)
            elif f.type == "Array":
                dtype, length = np.dtype(value[0]), value[1]
                if length < 0:  # which would be all the rest
                    raise ValueError(f"{f.name} of {length}")
                values[f.name] = np.frombuffer(data, dtype, length, at)
                at += length * dtype.itemsize
            elif f.name == "reason":
                values[f.name] = FinishReason(value)
            elif isinstance(value, list):
                values[f.name] = tuple(value)
        return cls(**values)
    except Exception as error:  # a damaged line can be anything
        raise ValueError(f"not a record of version {VERSION}: {kind!r} ({str(error)[:200]})") from error
