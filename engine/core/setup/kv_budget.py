"""How many blocks of KV cache there is memory for.

torch's `expandable_segments` stay off: they save what is lost between blocks of changing sizes, and here the pool is
taken once, in whole segments as `gpu_needs` counts them, after steps took theirs and what was free was given back. That
holds since weights are read tensor by tensor: of segments that they share, `read_weights` tells.
"""

import gc
from collections.abc import Sequence

import torch

from engine.config.specs import EngineConfig, InvalidInput
from engine.core import machine
from engine.core.setup.card import card_of
from engine.memory.layer_kv import kv_token_bytes
from engine.memory.rules import pool_share, pool_size
from engine.models.loading import LoadedModel
from engine.scheduler.block_pool import blocks_for
from engine.trace.records import ModelCard


def pool_blocks(model: LoadedModel, config: EngineConfig, needed: int = 0, draft: LoadedModel | None = None) -> int:
    """Blocks of the pool: what `kv_memory` holds; else what the running requests could ever fill, within a quarter of
    the free memory. On a GPU within all that is free but what is `needed` besides, in bytes, and a reserve; there
    `kv_memory` is held against that too. Of either, the states of layers that keep one come first, for every slot. A
    block has room for the `draft` model's K and V as well. Of a model that is split over GPUs, the least free of them
    has room for its share. Raises InvalidInput where it does not fit, or not even one block does."""
    states = model.card.states_of(config)
    sides = [side.card_with(config.kv_dtype) for side in (model, draft) if side is not None]
    block_bytes = sum(card.kv_token_bytes for card in sides) * config.block_size
    wanted = config.kv_memory
    if wanted is not None and wanted < states + block_bytes:
        remedy = "give at least that, or a smaller block_size"
        if states:
            least = states + block_bytes
            remedy = f"and the states of {config.slots:,} requests {states:,}; give at least {least:,}, or a smaller "
            remedy += "max_running"
        raise InvalidInput(
            f"kv_memory={wanted:,}: one block of this model takes {block_bytes:,} bytes "
            f"({config.block_size:,} tokens){', ' if states else '; '}{remedy}"
        )
    if wanted is not None and model.device.type != "cuda":
        return (wanted - states) // block_bytes
    rooms = [(free_memory(model.device), draws_desktop(model.device))]
    parts = [block_bytes]  # of a block on each device
    if model.ranks is not None and model.device.type == "cuda":
        rooms += model.ranks.room()
        draft_card = sides[1] if draft is not None else None
        parts = [each * config.block_size for each in rank_token_bytes(model, config, draft_card)]
    free, share = least_room(rooms, parts, model.device.type, needed)
    if wanted is not None:
        return (check_wanted(wanted, share, free, needed) - states) // block_bytes
    blocks = pool_size(share - states, block_bytes, config.slots, model.card.context, config.block_size)
    if blocks < 1:
        raise InvalidInput(f"no memory is left for a KV cache: a block takes {block_bytes:,} bytes, {share:,} are free")
    return blocks


def least_room(rooms: Sequence[tuple[int, bool]], parts: Sequence[int], kind: str, needed: int = 0) -> tuple[int, int]:
    """Bytes that are free, and those of a pool that may be taken, over all devices of this kind, as the least of them
    has room for its part. `rooms`: of each what is free, and whether it drives a display; `parts`: what a block takes
    there."""
    whole = sum(parts)
    found = [
        (pool_share(free, kind, needed, display) * whole // part, free * whole // part)
        for (free, display), part in zip(rooms, parts, strict=True)
    ]
    share, free = min(found)
    return free, share


def rank_token_bytes(model: LoadedModel, config: EngineConfig, draft: ModelCard | None) -> list[int]:
    """Of each rank's part of a split model the bytes of a token's K and V; rank 0 has a draft's too."""
    assert model.ranks is not None
    item = model.dtype.itemsize
    each = [kv_token_bytes(kv, item, config.kv_dtype) for kv in (model.layer_kv, *model.ranks.layer_kv)]
    each[0] += draft.kv_token_bytes if draft is not None else 0
    return each


def draws_desktop(device: torch.device) -> bool:
    """Whether a GPU drives a display."""
    card = card_of(device)
    return card is not None and card.drives_display()


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
