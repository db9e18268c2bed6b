"""How many blocks of KV cache there is memory for.

torch's `expandable_segments` stay off: they save what is lost between blocks of changing sizes, and here the pool is
taken once, in whole segments as `gpu_needs` counts them, after steps took theirs and what was free was given back.
"""

import gc

import torch

from engine.config.specs import EngineConfig, InvalidInput
from engine.core import machine
from engine.core.setup.card import card_of
from engine.memory.rules import pool_share, pool_size
from engine.models.loading import LoadedModel
from engine.scheduler.block_pool import blocks_for


def pool_blocks(model: LoadedModel, config: EngineConfig, needed: int = 0, draft: LoadedModel | None = None) -> int:
    """Blocks of the pool: what `kv_memory` holds; else what the running requests could ever fill, within a quarter of
    the free memory. On a GPU within all that is free but what is `needed` besides, in bytes, and a reserve; there
    `kv_memory` is held against that too. A block has room for the `draft` model's K and V as well. Raises InvalidInput
    where it does not fit, or not even one block does."""
    sides = [side.card_with(config.kv_dtype) for side in (model, draft) if side is not None]
    block_bytes = sum(card.kv_token_bytes for card in sides) * config.block_size
    wanted = config.kv_memory
    if wanted is not None and wanted < block_bytes:
        raise InvalidInput(
            f"kv_memory={wanted:,}: one block of this model takes {block_bytes:,} bytes "
            f"({config.block_size:,} tokens); give at least that, or a smaller block_size"
        )
    if wanted is not None and model.device.type != "cuda":
        return wanted // block_bytes
    free = free_memory(model.device)
    card = card_of(model.device)
    share = pool_share(free, model.device.type, needed, card is not None and card.drives_display())
    if wanted is not None:
        return check_wanted(wanted, share, free, needed) // block_bytes
    blocks = pool_size(share, block_bytes, config.slots, model.card.context, config.block_size)
    if blocks < 1:
        raise InvalidInput(f"no memory is left for a KV cache: a block takes {block_bytes:,} bytes, {share:,} are free")
    return blocks


def check_wanted(wanted: int, share: int, free: int, needed: int) -> int:
    """`wanted` bytes, unless a GPU with so much memory `free` cannot hold them. Raises InvalidInput."""
    if wanted > share:
        raise InvalidInput(
            f"kv_memory={wanted:,}: {free:,} bytes of the GPU's memory are free beside the weights, and steps and "
            f"their graphs need {needed:,} of them; give at most {share:,}, or a smaller token_budget or max_running"
        )
    return wanted


def free_memory(device: torch.device) -> int:
    """Bytes that can be taken now; of a GPU as its driver says, once torch has given back what it keeps."""
    if device.type != "cuda":
        return machine.memory()[1]
    torch.cuda.synchronize(device)
    gc.collect()
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(device)[0])


def step_blocks(config: EngineConfig, context: int) -> int:
    """Blocks of a pool just large enough for a step at the token budget, prompts in every slot."""
    rows = min(config.token_budget, config.slots)
    length = min(config.token_budget // rows, (context or config.token_budget + 1) - 1)
    blocks = rows * blocks_for(length + 1, config.block_size)
    return blocks + blocks // 50 + 2  # the scheduler keeps some back where it admits
