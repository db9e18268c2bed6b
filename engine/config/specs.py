"""What a person can choose: the model, how the engine batches, how tokens are drawn. Values are checked when made."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.config.adapters import adapter_name, adapters
from engine.config.checks import InvalidInput as InvalidInput
from engine.config.checks import check, number, one_of, text, whole
from engine.config.output_rules import biases, regular_expression, schema, texts
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
MOST_SAMPLES = 64
MOST_PRIORITY = 1_000_000
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

    `source` is "demo", "demo-draft", "demo-moe", a local folder or a hub id, which may end with "@" and its `revision`.
    `quantization` "none" takes the weights as they are stored, in AWQ or MXFP4 too; "awq" of "demo" is the AWQ
    checkpoint that ships. `dtype`, that of all that is not quantized and of the arithmetic, "auto" is the checkpoint's
    on a GPU, and on a CPU float32, or bfloat16 with quantized weights. `device` is "auto", "cpu", "cuda" or "cuda:N".
    `parallel` splits it over several ranks, on a CPU. `kv_heads` repeats its key and value heads until there are so
    many, "all": one for each query head, as without grouped-query attention: the same answers, more K and V; "auto"
    holds what it has. `adapters` (LoRA, as PEFT writes them) are folders, or names of those that ship, as "NAME=SOURCE"
    where they are to be called otherwise; requests choose one by its name, and share steps.
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


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request's tokens are chosen and when it ends.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 are off. `logprobs` asks for that many alternatives
    to each token. `seed` None takes the engine's; noise is a function of (seed, branch, position) alone. `n` samples
    of one prompt share its blocks (paged modes).

    `beam_width` above 1 searches with so many beams (paged modes), which are a request's branches: its results are that
    many texts, best first, and `n` is 1. Nothing is drawn then: `temperature` is 0. A text's score is the sum of its
    log-probabilities over its length to the power of `length_penalty`. `early_stopping`: True ends the search with the
    first `beam_width` texts that are finished, False when the best live beam scores worse than all of them, "never"
    when it could not score better at any length either.

    `frequency_penalty` is taken from a token's logit for each time that the answer has it, `presence_penalty` once
    where it has it at all. The first `min_tokens` tokens end nothing: no end of text, no stop string. `logit_bias` (a
    mapping of token ids, or pairs) is added to logits. The tokens of `bad_words`, as they are written at a text's
    beginning and after a space, are never completed.

    `prompt_logprobs` (paged modes) asks for the log-probability of each of the prompt's tokens but the first, given
    those before it, with that many alternatives: None for none of it, 0 for the tokens' own alone. Such a request reads
    no cached prefix.

    `attention` tells with each token of the answer what it attended to, in every layer and head. Steps that do so are
    not replayed.

    Where `admission` asks for it, who has the lowest `priority` joins first, of those alike who came first.

    `adapter` is the name of one of the model's adapters, "" for the model as it is.

    The output follows one grammar at most: `regex`, a regular expression for all of it; `choices`, texts of which it is
    one; or `json_schema` (a mapping, its text, or a pydantic model), kept as its text: then it is JSON on one line with
    the separators of `json.dumps`. Where max_tokens cut it off, the grammar is not complete.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    ignore_eos: bool = False
    logprobs: int = 0
    n: int = 1
    beam_width: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    min_tokens: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[str, ...] = ()
    regex: str | None = None
    choices: tuple[str, ...] = ()
    json_schema: str | None = None
    prompt_logprobs: int | None = None
    priority: int = 0
    adapter: str = ""
    attention: bool = False

    def __post_init__(self) -> None:
        whole("max_tokens", self.max_tokens)
        for name, low, high, rule in (
            ("temperature", 0.0, 100.0, "must be between 0 (greedy) and 100"),
            ("top_p", 0.0, 1.0, "must be above 0 and at most 1 (off)"),
            ("min_p", 0.0, 1.0, "must be from 0 (off) to 1"),
            ("repetition_penalty", 0.0, 100.0, "must be above 0 (1 is off)"),
            ("frequency_penalty", -100.0, 100.0, "must be from -100 to 100 (0 is off)"),
            ("presence_penalty", -100.0, 100.0, "must be from -100 to 100 (0 is off)"),
        ):
            number(name, getattr(self, name), low, high, rule)
        check(self.top_p > 0, "top_p", self.top_p, "must be above 0 and at most 1 (off)")
        check(self.repetition_penalty > 0, "repetition_penalty", self.repetition_penalty, "must be above 0 (1 is off)")
        whole("top_k", self.top_k, 0, rule="must be a whole number; 0 is off")
        for name in ("stop", "bad_words", "choices"):
            object.__setattr__(self, name, texts(name, getattr(self, name)))
        if self.seed is not None:
            whole("seed", self.seed, 0, rule="must be a whole number of at least 0, or None")
        whole("logprobs", self.logprobs, 0, 20)
        if self.prompt_logprobs is not None:
            whole("prompt_logprobs", self.prompt_logprobs, 0, 20, "must be None (off), or a whole number from 0 to 20")
        whole("n", self.n, 1, MOST_SAMPLES)
        whole("priority", self.priority, -MOST_PRIORITY, MOST_PRIORITY)
        text("adapter", self.adapter)
        check(isinstance(self.attention, bool), "attention", self.attention, "must be True or False")
        self._check_rules()
        self._check_beams()

    def _check_beams(self) -> None:
        whole("beam_width", self.beam_width, 1, MOST_SAMPLES)
        number("length_penalty", self.length_penalty, -10.0, 10.0, "must be between -10 and 10")
        stopping = isinstance(self.early_stopping, bool) or self.early_stopping == "never"
        check(stopping, "early_stopping", self.early_stopping, 'must be True, False or "never"')
        if self.beam_width == 1:
            return
        samples = f"beam_width={self.beam_width} gives that many results by itself; leave n at 1"
        check(self.n == 1, "n", self.n, samples)
        weighs = "beams are weighed by the model's own probabilities; leave it 1, or beam_width at 1"
        check(self.repetition_penalty == 1.0, "repetition_penalty", self.repetition_penalty, weighs)
        rules = ("frequency_penalty", "presence_penalty", "min_tokens", "logit_bias", "bad_words")
        for name in (*rules, "regex", "choices", "json_schema"):
            check(not getattr(self, name), name, getattr(self, name), weighs.replace("leave it 1", "leave it out"))
        told = "a beam search tells nothing of its prompt; leave it out, or beam_width at 1"
        check(self.prompt_logprobs is None, "prompt_logprobs", self.prompt_logprobs, told)
        paths = "a beam search moves its paths from row to row; leave it out, or beam_width at 1"
        check(not self.attention, "attention", self.attention, paths)
        object.__setattr__(self, "temperature", 0.0)

    @property
    def branches(self) -> int:
        """How many results a request has, and branches: samples or beams."""
        return max(self.n, self.beam_width)

    def _check_rules(self) -> None:
        """What is asked of the output, each in the form that it is kept in."""
        object.__setattr__(self, "logit_bias", biases(self.logit_bias))
        object.__setattr__(self, "regex", regular_expression(self.regex))
        object.__setattr__(self, "json_schema", schema(self.json_schema))
        most = f"must be a whole number from 0 to max_tokens ({self.max_tokens:,})"
        whole("min_tokens", self.min_tokens, 0, self.max_tokens, most)
        grammars = [name for name in ("regex", "choices", "json_schema") if getattr(self, name)]
        check(len(grammars) < 2, " and ".join(grammars), "…", "give one of them; an output follows one grammar")
        for name in ("ignore_eos", "min_tokens", "bad_words"):
            alone = f"cannot be combined with {''.join(grammars)}, which says itself what comes and when it ends"
            check(not grammars or not getattr(self, name), name, getattr(self, name), alone)

    @property
    def constrained(self) -> bool:
        """Whether the output must follow a grammar."""
        return bool(self.regex or self.choices or self.json_schema)

    def with_(self, **changes: Any) -> SamplingParams:
        """A copy with some values changed."""
        return replace(self, **changes)
