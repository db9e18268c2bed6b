"""How many blocks of KV cache there is memory for."""

from __future__ import annotations

import torch

from engine import machine
from engine.config import EngineConfig, InvalidInput
from engine.memory_rules import pool_share, pool_size
from engine.models.loading import LoadedModel


def pool_blocks(model: LoadedModel, config: EngineConfig) -> int:
    """Blocks of the pool: what `kv_memory` holds; else what the running requests could ever fill, within a quarter of
    the free memory (85 % on a GPU). Raises InvalidInput where not even one fits."""
    block_bytes = model.card.kv_token_bytes * config.block_size
    if config.kv_memory is not None:
        blocks = config.kv_memory // block_bytes
        if blocks < 1:
            raise InvalidInput(
                f"kv_memory={config.kv_memory:,}: one block of this model takes {block_bytes:,} bytes "
                f"({config.block_size:,} tokens); give at least that, or a smaller block_size"
            )
        return int(blocks)
    if model.device.type == "cuda":
        torch.cuda.empty_cache()
        free = int(torch.cuda.mem_get_info(model.device)[0])
    else:
        free = machine.memory()[1]
    share = pool_share(free, model.device.type)
    blocks = pool_size(share, block_bytes, config.slots, model.card.context, config.block_size)
    if blocks < 1:
        raise InvalidInput(f"no memory is left for a KV cache: a block takes {block_bytes:,} bytes, {share:,} are free")
    return blocks
