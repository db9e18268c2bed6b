"""The first record of a trace: the model, the machine and what the device holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.config.parallel import shares
from engine.config.specs import EngineConfig

VERSION = 5  # of the format of records


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The loaded model: geometry, and bytes of its weights and of one token's K and V over all layers.

    What a step costs is counted from: `body_parameters`, the weights that the layers multiply tokens with, all experts
    counted; `expert_parameters`, those of them that belong to experts, of whom a token is sent to `active_experts` of
    `experts`; `head_parameters`, of the output layer; `bytes_per_weight`, as the body is stored; `windows`, each
    layer's sliding window in tokens, 0 for none. All are 0 or empty where nobody counted. `stretched`: the context that
    LongRoPE is said to reach, where `context` ends with its short factors. `kv_dtype`: that of K and V, "" where it is
    `dtype`. `kv_layers`: layers with K and V of their own, which others may read too; 0 where nobody counted.
    `kv_heads_stored`: key and value heads of the checkpoint, where each is held several times; 0 where each is once.
    `latent`: K and V are one vector of `head_dim` numbers a layer, a latent that all heads read.
    `attending`: the numbers of the layers that attend, whose `windows` are told; empty where all do. `state_layers`:
    those of the layers that keep a state of a sequence; `state_bytes`: of a sequence over all of them.
    `expert_layers`: the numbers of the layers whose tokens a step tells the experts of; empty where none is told.
    `adapters`: the names of those that requests can choose, each of the highest of its `adapter_ranks`;
    `adapter_bytes`: of all of them as they are held, which are part of `weight_bytes`.
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
    kv_heads_stored: int = 0
    latent: bool = False
    expert_layers: tuple[int, ...] = ()
    adapters: tuple[str, ...] = ()
    adapter_ranks: tuple[int, ...] = ()
    adapter_bytes: int = 0
    attending: tuple[int, ...] = ()
    state_layers: tuple[int, ...] = ()
    state_bytes: int = 0

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The numbers of those that attend, from 0."""
        return self.attending or tuple(range(self.layers))

    def states_of(self, config: EngineConfig) -> int:
        """Bytes of the states of all requests that may run at once."""
        return self.state_bytes * config.slots * (config.mode != "recompute")

    def kv_memory(self, tokens: int, config: EngineConfig) -> int:
        """Bytes that hold K and V of so many tokens, and all states."""
        return tokens * self.kv_token_bytes + self.states_of(config)


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
class Interconnect:
    """What the ranks of a split model send each other through, in words (`way`: "shared memory", "loopback"), and how
    fast, measured at load: of messages of `messages[i]` bytes, `rates[i]` bytes a second that one rank hands over until
    it has what all did. `seconds`: how long measuring took."""

    way: str
    messages: tuple[int, ...]
    rates: tuple[float, ...]
    seconds: float = 0.0

    def rate_at(self, message: float) -> float:
        """Bytes a second of messages of so many bytes: between two that were measured in proportion to the logarithm
        of their size, and beyond them as at the nearest."""
        return float(np.interp(np.log(max(message, 1.0)), np.log(self.messages), self.rates))


@dataclass(frozen=True, slots=True)
class Kernels:
    """What a step that a CPU replays spends its time in, columns `[kernels]` in the order in which they first come.
    `names`: of matrix products their layers', as "q_proj, k_proj, v_proj"; else the kernel's, as "decode_attention".
    Of all layers together: how many `calls` a pass has, with how many `weights` of how many `bytes` it multiplies (of
    "experts gate_up" and "experts down" those of all experts), and whether it is done for the tokens alone that are
    `drawn`."""

    names: tuple[str, ...]
    calls: tuple[int, ...]
    weights: tuple[int, ...]
    bytes: tuple[int, ...]
    drawn: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class MemoryBreakdown:
    """Where the device's memory goes after load and warm-up, in bytes that add up to `total`.

    `activations`: the most that a step at the token budget took beyond weights and pool; `graphs`: what captured CUDA
    graphs hold; `runtime`: what this process holds besides; `other`: other processes; `draft`: a draft model's weights;
    `states`: those of layers that keep one, for every request that may run.
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
    states: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """The first record. `created` is Unix time in seconds; `blocks` is the KV pool's size. `graphs` are the numbers of
    rows for which a decode step was captured, as a CUDA graph or, on a CPU, as one program; `graphs_off` why there are
    none. `mixed_graphs` are the numbers of tokens for which a step with prompts was captured (on a CPU the most of a
    run, of which a step may have several); `mixed_off` why there are none. `draft` is the model that drafts, whose K
    and V lie in the same blocks. `host_blocks`: blocks of host memory that K and V of preempted requests, and of
    offloaded prefixes, are copied to; `swap_rate`: bytes a second of such a copy, as measured at load, 0 where nobody
    did.
    Of a model that is split over ranks, `rank_devices`, `rank_weights` and `rank_kv` (bytes, the latter of the pool) of
    each, over what they meet in words, and how fast; `sequence_parallel`: whether they share the rows of norms and
    residuals; `expert_parallel`: whether each has some of a mixture's experts whole; of a pipeline how many of the
    layers each has, `rank_layers`, and into how many `micro_batches` a step was to be parted (0: as many as stages);
    the card and the pool's blocks are those of the whole, and the roof is that of all ranks at once. `kernels`: what a
    replayed step on a CPU does, of rank 0.
    `outside`: host and port of a server that was watched as its clients see it; `lacks`: what it cannot do, in phrases.
    Then a step is a piece of text that came, of one row, and takes no time; the ids of its tokens are -1 and their
    log-probabilities 0, since nobody told them; and nothing is known of batches, blocks, the machine, and of the model
    but its name."""

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
    rank_devices: tuple[str, ...] = ()
    rank_weights: tuple[int, ...] = ()
    rank_kv: tuple[int, ...] = ()
    ranks_meet: str = ""
    sequence_parallel: bool = False
    expert_parallel: bool = False
    rank_layers: tuple[int, ...] = ()
    micro_batches: int = 0
    interconnect: Interconnect | None = None
    outside: str = ""
    lacks: tuple[str, ...] = ()
    kernels: Kernels | None = None

    @property
    def split(self) -> int:
        """Over how many ranks the model is split. A prefill worker has the whole of it, as who decodes does."""
        return 1 if self.config.disaggregated else max(1, len(self.rank_devices))

    @property
    def rank_experts(self) -> tuple[tuple[int, int], ...]:
        """Of each rank the experts that it alone has, from the first to before the last; empty where all have all."""
        ranks = self.split if self.expert_parallel else 0
        return tuple(shares(self.model.experts, rank, ranks) for rank in range(ranks))

    @property
    def most_tokens(self) -> int:
        """Of those that are computed at once: a longer step is recorded as several runs."""
        return self.mixed_graphs[-1] if self.mixed_graphs else self.config.token_budget

    @property
    def kv_token_bytes(self) -> int:
        """Of one token's K and V, the model's and the draft's."""
        return self.model.kv_token_bytes + (self.draft.kv_token_bytes if self.draft is not None else 0)

    @property
    def pool_bytes(self) -> int:
        """Of the pool's blocks."""
        return self.blocks * self.config.block_size * self.kv_token_bytes

    @property
    def kv_memory(self) -> int:
        """What the pool and all states take: the `kv_memory` that gives as many blocks."""
        return self.pool_bytes + self.model.states_of(self.config)
