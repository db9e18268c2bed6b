"""transformers' `generate_batch`, driven prompt by prompt, since it takes one length for all of them."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, PreTrainedModel
from transformers.generation.continuous_batching.cache import PagedAttentionCache

from engine.bench.subject import Case

# The manager says on every start that no end token is set, which is what we want.
logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)


def seconds_of(
    module: PreTrainedModel,
    case: Case,
    how: GenerationConfig,
    sizes: dict[str, Any],
    patience: float,
    tell: Callable[[str], object] = str,
    rounds: int = 1,
    **manager: Any,
) -> float:
    """From the first request in to the last token out, the least of some rounds: making the manager, its cache and its
    graphs is off the clock. Blocks are not shared. `tell` hears which attention the manager has switched to, which it
    takes back afterwards. Raises TimeoutError where a round takes more than `patience` seconds, RuntimeError where it
    fails."""
    config = batching_config(**sizes, max_requests_per_batch=len(case), allow_block_sharing=False)
    with (
        warnings.catch_warnings(),
        torch.no_grad(),
        caches_of_zeros(),
        module.continuous_batching_context_manager(
            generation_config=how, continuous_batching_config=config, **manager
        ) as batch,
    ):
        warnings.simplefilter("ignore")
        tell(module.config._attn_implementation)
        return min(_round(batch, case, patience) for _ in range(rounds))


def _round(batch: Any, case: Case, patience: float) -> float:
    begun = time.perf_counter()
    for prompt, new in zip(case.prompts, case.new_tokens):
        batch.add_request(list(prompt), max_new_tokens=new, eos_token_id=-1)
    tokens = 0
    for _ in range(len(case)):
        result = batch.get_result(timeout=max(0.1, begun + patience - time.perf_counter()))
        if result is None:
            raise TimeoutError(f"generate_batch: not over after {patience:.0f} s")
        if result.error is not None:
            raise RuntimeError(f"generate_batch: {result.error}")
        tokens += len(result.generated_tokens)
    seconds = time.perf_counter() - begun
    if tokens != case.output_tokens:
        raise RuntimeError(f"generate_batch gave {tokens} tokens of {case.output_tokens}")
    return seconds


@contextmanager
def caches_of_zeros() -> Iterator[None]:
    """Up to transformers 5.17 a cache is memory that nobody wrote, of which the warm-up reads: it may find NaN there,
    and to draw from NaN ends whatever uses the GPU in this process."""
    made = PagedAttentionCache.__init__

    def make(cache: Any, *given: Any, **named: Any) -> None:
        made(cache, *given, **named)
        for layer in (*getattr(cache, "key_cache", ()), *getattr(cache, "value_cache", ())):
            layer.zero_()

    PagedAttentionCache.__init__ = make
    try:
        yield
    finally:
        PagedAttentionCache.__init__ = made


def without_flash(module: PreTrainedModel) -> dict[str, Any]:
    """Settings with which the manager leaves a flash attention alone that does not work."""
    if "auto_switch_to_flash" in ContinuousBatchingConfig.__dataclass_fields__:
        module.set_attn_implementation("sdpa")
        return {"auto_switch_to_flash": False}
    module.set_attn_implementation("paged|sdpa")  # up to transformers 5.17
    return {}


def batching_config(**values: Any) -> ContinuousBatchingConfig:
    """`page_size` was named `block_size` up to transformers 5.17."""
    if "page_size" in values and "page_size" not in ContinuousBatchingConfig.__dataclass_fields__:
        values["block_size"] = values.pop("page_size")
    return ContinuousBatchingConfig(**values)
