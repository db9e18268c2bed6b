"""transformers' own ways to answer many prompts, each at the settings that a short trial found best."""

import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers import GenerationConfig, LlamaForCausalLM

from engine.bench.cpu.alone import alone
from engine.bench.generate_batch import seconds_of
from engine.bench.subject import Case

STATIC_BATCH = 8
PATIENCE = 300.0  # seconds that a case may take


class Peer(Protocol):
    """One way of running a case. `settings` says in words what the trial chose."""

    name: str

    @property
    def settings(self) -> str: ...

    def seconds(self, case: Case) -> float:
        """Runs the whole case; the seconds from its first prompt in to its last token out."""
        ...


def greedy(new_tokens: int, **more: Any) -> GenerationConfig:
    return GenerationConfig(max_new_tokens=new_tokens, do_sample=False, eos_token_id=None, pad_token_id=0, **more)


def generate(module: LlamaForCausalLM, ids: torch.Tensor, mask: torch.Tensor, new: int, cache: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = module.generate(
            input_ids=ids, attention_mask=mask, generation_config=greedy(new, cache_implementation=cache)
        )
    assert out.shape[1] == ids.shape[1] + new, f"{out.shape[1] - ids.shape[1]} tokens came, {new} were asked for"


@dataclass
class OneByOne:
    """`generate`, a prompt at a time."""

    module: LlamaForCausalLM
    threads: int
    cache: str | None = None
    name = "transformers generate, one by one"

    @property
    def settings(self) -> str:
        return f"{self.cache or 'dynamic'} cache, {threads_in_words(self.threads)}"

    def seconds(self, case: Case) -> float:
        torch.set_num_threads(self.threads)
        begun = time.perf_counter()
        for prompt, new in zip(case.prompts, case.new_tokens):
            ids = torch.tensor([prompt])
            generate(self.module, ids, torch.ones_like(ids), new, self.cache)
        return time.perf_counter() - begun


@dataclass
class StaticBatch:
    """`generate` on eight prompts at once, padded on the left; a batch ends when its longest row has its tokens."""

    module: LlamaForCausalLM
    threads: int
    cache: str | None = None
    name = f"transformers generate, static batch of {STATIC_BATCH}"

    @property
    def settings(self) -> str:
        return f"{self.cache or 'dynamic'} cache, {threads_in_words(self.threads)}"

    def seconds(self, case: Case) -> float:
        torch.set_num_threads(self.threads)
        begun = time.perf_counter()
        for at in range(0, len(case), STATIC_BATCH):
            prompts = case.prompts[at : at + STATIC_BATCH]
            width = max(map(len, prompts))
            ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts])
            mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
            generate(self.module, ids, mask, max(case.new_tokens[at : at + STATIC_BATCH]), self.cache)
        return time.perf_counter() - begun


@dataclass
class ContinuousBatch:
    """`generate_batch`. Attention is sdpa: flash kernels need a GPU. The cache holds the whole case, with the margin
    below which the manager would hold prompts back."""

    module: LlamaForCausalLM
    threads: int
    page_size: int = 256
    max_batch_tokens: int = 512
    name = "transformers generate_batch"

    @property
    def settings(self) -> str:
        sizes = f"page_size {self.page_size}, max_batch_tokens {self.max_batch_tokens}"
        return f"sdpa, {sizes}, {threads_in_words(self.threads)}"

    def seconds(self, case: Case) -> float:
        torch.set_num_threads(self.threads)
        pages = sum(-(-(len(p) + n) // self.page_size) for p, n in zip(case.prompts, case.new_tokens))
        blocks = {"page_size": self.page_size, "num_blocks": int(pages * 1.5) + 4}
        sizes = blocks | {"max_batch_tokens": self.max_batch_tokens}
        return seconds_of(self.module, case, greedy(max(case.new_tokens)), sizes, PATIENCE)


def threads_in_words(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def one_by_one(module: LlamaForCausalLM, threads: Iterable[int]) -> list[Peer]:
    return [OneByOne(module, t, cache) for t in threads for cache in (None, "static")]


def static_batches(module: LlamaForCausalLM, threads: Iterable[int]) -> list[Peer]:
    return [StaticBatch(module, t, cache) for t in threads for cache in (None, "static")]


def continuous_batches(module: LlamaForCausalLM, threads: Iterable[int]) -> list[Peer]:
    sizes = ((32, 128), (32, 512), (256, 512))
    return [ContinuousBatch(module, t, page, tokens) for t in threads for page, tokens in sizes]


def fastest(candidates: list[Peer], trial: Case) -> Peer:
    """The candidate that runs the trial in the least time, best of two; the first run of all warms up."""

    def seconds(peer: Peer) -> float:
        return alone(lambda: peer.seconds(trial))

    seconds(candidates[0])
    best = {id(peer): min(seconds(peer) for _ in range(2)) for peer in candidates}
    return min(candidates, key=lambda peer: best[id(peer)])
