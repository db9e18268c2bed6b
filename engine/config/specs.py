"""What a person can choose of the model, and of how the engine batches. Values are checked when made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from engine.config.adapters import adapter_name, adapters
from engine.config.checks import InvalidInput as InvalidInput
from engine.config.checks import check, number, one_of, whole
from engine.config.parallel import Parallel
from engine.config.schemes import SCHEMES

MODES = {
    "recompute": "no KV cache: one request at a time, its whole sequence computed again for every token",
    "sequential": "one request at a time over a contiguous KV cache",
    "static": "N requests join together and leave together; rows that are done wait for the longest",
    "dynamic": "as static, but a batch also starts when its first request has waited long enough",
    "continuous-padded": "requests join and leave at every step; one contiguous cache, padded to the longest",
    "continuous": "paged KV cache; requests join and leave at every step; prefill and decode in separate steps",
    "chunked": "paged KV cache; decodes and chunks of prompts share the token budget of one step",
    "disaggregated": "paged KV cache; one process computes prompts while another decodes, over the same blocks",
}
PAGED_MODES = ("continuous", "chunked", "disaggregated")
COLOCATED_MODES = ("continuous", "chunked")
SOLITARY_MODES = ("recompute", "sequential")
DELIVERIES = ("stream", "batch")
PREEMPTIONS = ("recompute", "swap", "auto")
SWITCHES = ("cuda_graphs", "mixed_graphs", "prefix_caching", "mixed_adapters", "offload_prefixes")
ADMISSIONS = {
    "fcfs": "first come, first served",
    "sjf": "shortest job first: the fewest tokens, prompt and max_tokens together",
    "lpm": "longest prefix match first: the most tokens in the prefix cache",
    "priority": "by priority: the request with the lowest number first",
    "fair": "fair shares: whose label was served the fewest tokens",
}
QUANTIZATIONS = tuple(SCHEMES)
SPECULATIONS = {
    "ngram": "what followed the same words before, in the prompt or the answer",
    "draft": "what a smaller model says",
}
MOST_SPECULATED = 31
AUTO_SPECULATED = 7  # drafted tokens of a row at most: with its own as many as attention takes for a short row
PINNED = re.compile(r"([\w.-]+/[\w.-]+)@([\w./-]+)")  # a hub id and its revision
DTYPES = ("auto", "float32", "bfloat16", "float16")
KV_DTYPES = ("auto", "int8", "fp8")
TARGET_MODES = ("chunked",)  # where steps of answers take in as much of prompts as there is time for
TARGET_RULE = "mode {mode!r} computes whole prompts before answers go on; use chunked, or leave it out"


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Which model and how it is held.

    `source` is "demo", "demo-draft", "demo-moe", "demo-mla", "demo-hybrid", a local folder or a hub id, which may end
    with "@" and its `revision`.
    `quantization` "none" takes the weights as they are stored, in AWQ or MXFP4 too; "awq" of "demo" is the AWQ
    checkpoint that ships. `dtype`, that of all that is not quantized and of the arithmetic, "auto" is the checkpoint's
    on a GPU, and on a CPU float32, or bfloat16 with quantized weights. `device` is "auto", "cpu", "cuda" or "cuda:N".
    `parallel` splits it over several ranks, on a CPU. `kv_heads` repeats its key and value heads until there are so
    many, "all": one for each query head, as without grouped-query or latent attention: the same answers, more K and V;
    "auto" holds what it has. `adapters` (LoRA, as PEFT writes them) are folders, or names of those that ship, as
    "NAME=SOURCE" where they are to be called otherwise; requests choose one by its name, and share steps.
    """

    source: str = "demo"
    quantization: str = "none"
    dtype: str = "auto"
    device: str = "auto"
    revision: str | None = None
    trust_remote_code: bool = False
    parallel: Parallel = Parallel()
    kv_heads: int | str = "auto"
    adapters: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.parallel, dict):  # from a record
            object.__setattr__(self, "parallel", Parallel(**self.parallel))
        check(bool(self.source.strip()), "source", self.source, "name a model: demo, a folder or a hub id")
        pinned = PINNED.fullmatch(self.source)
        if pinned and not Path(self.source).exists():
            check(self.revision in (None, pinned[2]), "revision", self.revision, f"{self.source} names another")
            object.__setattr__(self, "source", pinned[1])
            object.__setattr__(self, "revision", pinned[2])
        one_of("quantization", self.quantization, QUANTIZATIONS)
        one_of("dtype", self.dtype, DTYPES)
        known = self.device in ("auto", "cpu", "cuda") or self.device.removeprefix("cuda:").isdigit()
        check(known, "device", self.device, "must be auto, cpu, cuda or cuda:N")
        if self.kv_heads not in ("auto", "all"):
            whole("kv_heads", self.kv_heads, rule="must be auto, all or a number of heads")
        whole_model = f"{self.parallel.words} splits the heads that a model has; use kv_heads=auto, or one device"
        check(self.kv_heads == "auto" or self.parallel.ranks == 1, "kv_heads", self.kv_heads, whole_model)
        object.__setattr__(self, "adapters", adapters(self.adapters))

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """What requests call them."""
        return tuple(map(adapter_name, self.adapters))


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How the engine batches.

    `max_running` requests hold a slot at once: the batch size of static and dynamic; recompute and sequential have one
    slot whatever it says. A step computes at most `token_budget` tokens where a mode can choose. New requests join
    every `join_every` steps (the continuous modes). A dynamic batch starts when it is full or its first request has
    waited `longest_wait` seconds. `delivery` "batch" (static and dynamic) holds all text back until the whole batch is
    done. KV blocks hold `block_size` tokens; `kv_memory` is the pool's size in bytes (None: from what is free).
    `prefix_caching` (paged modes) shares full blocks between prompts that begin alike. `depth` is how many steps are
    launched ahead of the one whose tokens are being read (None: 1 on a GPU, 0 on a CPU). `cuda_graphs` (paged modes):
    decode steps are captured at load and replayed (on a CPU as one program of its compiled kernels), where the model
    can be captured. `mixed_graphs`: steps with prompts are too, on a GPU up to some number of tokens. `kv_dtype` (paged
    modes) "int8" and "fp8" keep K and V in a byte a value, with a scale for each token and head; "auto" in the model's
    dtype.

    `speculation` (paged modes, depth 0) verifies `speculated` drafted tokens with each decode row's own; "auto" drafts
    as many as are likely enough to be kept. "ngram" drafts what followed the same words before, "draft" asks the model
    `draft`, which must share the vocabulary (None: the one that the model brings).

    `admission` says who of those that wait joins next: "fcfs", who came first; "sjf", who has the fewest tokens, prompt
    and `max_tokens` together; "lpm" (with prefix caching), whose prompt has the longest beginning in the cache;
    "priority", whose request has the lowest number of that name; "fair", whose label was served the fewest tokens, so
    that nobody who sends many keeps others waiting. With "sjf", "lpm" and "priority", one may wait for as long as
    others come.

    Where blocks run out, the request admitted last makes way, by "priority" the last of the highest number;
    `preemption` (paged modes) says how: "recompute" computes its tokens again later, "swap" copies their K and V to
    host memory and back, "auto" does what takes less time.

    `offload_prefixes` (with prefix caching): cached blocks that make room are copied to host memory first, and come
    back when a prompt begins with what they hold. `swap_memory` is how many bytes of host memory there are for both
    (None: enough for all that could run, and four times the pool, within a quarter of what is free, on a GPU 4 GiB).

    `target_itl` (mode "chunked"), seconds, is how long the gap between an answer's tokens may be in 19 of 20 cases: a
    step takes as many tokens of prompts as leave it that short, by what the steps before took, and who would make it
    longer waits. None: as many as the budget allows.

    `kv_window` (paged modes) forgets: a prompt is read whole, but of an answer that goes on only the last `kv_window`
    tokens and the first `kv_sinks` of all stay in the cache, by whole blocks. None keeps all.

    `mixed_adapters` (what is off is of the paged modes): requests of several adapters share a step. Without, those that
    run are all of one, as where an adapter is merged into the weights: others wait until none of it runs or waits.
    """

    mode: str = "continuous"
    max_running: int = 64
    token_budget: int = 2048
    block_size: int = 16
    kv_memory: int | None = None
    join_every: int = 1
    longest_wait: float = 0.2
    delivery: str = "stream"
    prefix_caching: bool = False
    speculation: str | None = None
    depth: int | None = None
    cuda_graphs: bool = True
    mixed_graphs: bool = True
    seed: int = 0
    speculated: int | str = "auto"
    draft: ModelSpec | None = None
    kv_dtype: str = "auto"
    preemption: str = "recompute"
    swap_memory: int | None = None
    admission: str = "fcfs"
    mixed_adapters: bool = True
    offload_prefixes: bool = False
    kv_window: int | None = None
    kv_sinks: int = 4
    target_itl: float | None = None

    def __post_init__(self) -> None:
        one_of("mode", self.mode, MODES)
        whole("max_running", self.max_running)
        whole("token_budget", self.token_budget)
        least = f"must be at least max_running ({self.max_running}), or a decode step would not fit in it"
        check(self.token_budget >= self.max_running, "token_budget", self.token_budget, least)
        whole("block_size", self.block_size)
        check(self.block_size & (self.block_size - 1) == 0, "block_size", self.block_size, "must be a power of two")
        if self.kv_memory is not None:
            whole("kv_memory", self.kv_memory, rule="must be a number of bytes, or None")
        whole("join_every", self.join_every, rule="must be a whole number of steps of at least 1")
        number("longest_wait", self.longest_wait, 0.0, 3600.0, "must be between 0 and 3600 seconds")
        one_of("delivery", self.delivery, DELIVERIES)
        batches = f"mode {self.mode!r} has no batch that ends together; use static or dynamic, or deliver as a stream"
        check(self.delivery == "stream" or self.mode in ("static", "dynamic"), "delivery", self.delivery, batches)
        for name in SWITCHES:
            check(isinstance(getattr(self, name), bool), name, getattr(self, name), "must be True or False")
        blocks = f"mode {self.mode!r} has no blocks to share; use one of {', '.join(PAGED_MODES)}, or switch it off"
        check(not self.prefix_caching or self.paged, "prefix_caching", self.prefix_caching, blocks)
        batches = f"mode {self.mode!r} takes whoever is next; use one of {', '.join(PAGED_MODES)}, or leave it on"
        check(self.mixed_adapters or self.paged, "mixed_adapters", self.mixed_adapters, batches)
        one_of("admission", self.admission, ADMISSIONS)
        others = "use fcfs, sjf, priority or fair"
        prefixes = f"looks for prompts in the prefix cache; switch prefix_caching on, or {others}"
        if not self.paged:
            prefixes = f"mode {self.mode!r} has no prefix cache; {others}, or one of {', '.join(PAGED_MODES)}"
        check(self.admission != "lpm" or self.prefix_caching, "admission", self.admission, prefixes)
        one_of("kv_dtype", self.kv_dtype, KV_DTYPES)
        whole_values = f"mode {self.mode!r} keeps K and V as they are; use one of {', '.join(PAGED_MODES)}, or auto"
        check(self.kv_dtype == "auto" or self.paged, "kv_dtype", self.kv_dtype, whole_values)
        self._check_speculation()
        check(self.depth in (None, 0, 1), "depth", self.depth, "must be 0, 1 or None")
        handed = "prompts are handed over between steps; leave depth None or 0"
        check(not (self.depth and self.disaggregated), "depth", self.depth, handed)
        whole("seed", self.seed, 0)
        one_of("preemption", self.preemption, PREEMPTIONS)
        blocks = f"mode {self.mode!r} swaps no blocks; use one of {', '.join(COLOCATED_MODES)}, or recompute"
        check(not self.swaps or self.mode in COLOCATED_MODES, "preemption", self.preemption, blocks)
        cached = "keeps what the prefix cache forgets; switch prefix_caching on, or this off"
        check(self.prefix_caching or not self.offload_prefixes, "offload_prefixes", self.offload_prefixes, cached)
        copies = f"mode {self.mode!r} copies no blocks; use one of {', '.join(COLOCATED_MODES)}, or switch it off"
        colocated = self.mode in COLOCATED_MODES
        check(colocated or not self.offload_prefixes, "offload_prefixes", self.offload_prefixes, copies)
        self._check_window()
        self._check_target()
        if self.swap_memory is not None:
            whole("swap_memory", self.swap_memory, rule="must be a number of bytes, or None")
            nothing = "preemption by recompute copies nothing; use swap or auto, or offload_prefixes"
            check(self.uses_host, "swap_memory", self.swap_memory, nothing)

    def _check_window(self) -> None:
        whole("kv_sinks", self.kv_sinks, 0, rule="must be a number of tokens, 0 for none")
        if self.kv_window is None:
            return
        whole("kv_window", self.kv_window, rule="must be a number of tokens of at least 1, or None to keep all")
        blocks = f"mode {self.mode!r} keeps K and V in one piece; use one of {', '.join(PAGED_MODES)}, or None"
        check(self.paged, "kv_window", self.kv_window, blocks)
        drafts = "a draft model reads all that was said, of which the cache forgets a part; use ngram, or None"
        check(self.speculation != "draft", "kv_window", self.kv_window, drafts)

    def _check_target(self) -> None:
        if self.target_itl is None:
            return
        rule = "must be a number of seconds above 0 (0.02 for 20 ms), at most 3600, or None"
        check(number("target_itl", self.target_itl, 0.0, 3600.0, rule) > 0, "target_itl", self.target_itl, rule)
        check(self.mode in TARGET_MODES, "target_itl", self.target_itl, TARGET_RULE.format(mode=self.mode))

    @property
    def sink_tokens(self) -> int:
        """How many tokens of a request's beginning are never forgotten: whole blocks of them."""
        return -(-self.kv_sinks // self.block_size) * self.block_size

    @property
    def swaps(self) -> bool:
        """True where preempted requests may go to host memory."""
        return self.preemption != "recompute"

    @property
    def uses_host(self) -> bool:
        """True where blocks of the pool may be copied to host memory."""
        return self.swaps or self.offload_prefixes

    def _check_speculation(self) -> None:
        if isinstance(self.draft, dict):  # from a record
            object.__setattr__(self, "draft", ModelSpec(**self.draft))
        one_of("speculation", self.speculation, (None, *SPECULATIONS))
        if self.speculated != "auto":
            whole("speculated", self.speculated, 1, MOST_SPECULATED, f"must be auto, or from 1 to {MOST_SPECULATED}")
        rows = f"mode {self.mode!r} has no rows of several tokens that decode; use one of {', '.join(PAGED_MODES)}"
        check(self.speculation is None or self.paged, "speculation", self.speculation, rows)
        ahead = "speculation needs each step's tokens before the next; leave depth None or 0"
        check(self.speculation is None or not self.depth, "depth", self.depth, ahead)
        check(self.draft is None or self.speculation == "draft", "draft", self.draft, 'is for speculation="draft"')

    @property
    def most_sampled(self) -> int:
        """Tokens that a row may sample in one step."""
        if self.speculation is None:
            return 1
        return 1 + (AUTO_SPECULATED if self.speculated == "auto" else int(self.speculated))

    @property
    def paged(self) -> bool:
        """True where rows are packed over a paged cache; else they are padded to one width over a contiguous one."""
        return self.mode in PAGED_MODES

    @property
    def disaggregated(self) -> bool:
        """True where prompts are computed by a process of their own."""
        return self.mode == "disaggregated"

    @property
    def slots(self) -> int:
        """How many requests can run at once."""
        return 1 if self.mode in SOLITARY_MODES else self.max_running
