"""Triton kernels that draw a step's tokens: the rule of `engine.runner.sampling.sampler`, without a word from the host.

What a row asks for is read from its slot's parameters on the device, so that one compiled kernel serves every mix and
a row's bits are the same whatever its batch mates ask for. Sums are taken in a fixed order.

`scan` reads the logits once, a chunk a program. `groups`, for rows with limits alone, lists the few groups of tokens
that can hold a kept one (`engine.kernels.sampling_limits`). `pick`, a program a row, then reads either those groups, to
find the lowest value that is kept and the token, or, without limits, the one chunk that holds the token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import jit, launch, next_power_of_two, tl
from engine.kernels.sampling_limits import (
    adjusted,
    asked_of,
    groups_kernel,
    has_limits,
    lowest_kept,
    read_tile,
    weight_of_kept,
)

WORDS = 8  # int32 words of a slot's parameters
CHUNK = 4096  # tokens of a program of `scan`: 32 a thread
GROUP = 32  # neighbouring tokens that share a highest value
MOST_GROUPS = 8192  # of a row that a program of `groups` holds in registers
TILE = 32  # groups that a program of `pick` reads at a time: more would spill registers

# Low bits that are the same in every float32 made of such a number: thresholds need not be searched among them.
UNUSED_BITS = {torch.float32: 0, torch.float16: 13, torch.bfloat16: 16}


@jit
def uniform(seed: tl.tensor, branch: tl.tensor, position: tl.tensor) -> tl.tensor:
    """`engine.runner.sampling.sampler.noise`, bit for bit: uint64 key, float64 result."""
    golden = tl.full([], 0x9E3779B97F4A7C15, tl.uint64)
    state = seed
    for i in tl.static_range(3):
        word = golden if i == 0 else (branch if i == 1 else position).to(tl.int64).to(tl.uint64) + 1
        state += word * golden
        state = (state ^ (state >> 30)) * tl.full([], 0xBF58476D1CE4E5B9, tl.uint64)
        state = (state ^ (state >> 27)) * tl.full([], 0x94D049BB133111EB, tl.uint64)
        state = state ^ (state >> 31)
    return ((state >> 11).to(tl.int64).to(tl.float64) + 0.5) * (1.0 / 9007199254740992.0)


@jit(do_not_specialize=["slots"])  # a slice of a step's metadata, of any alignment
def scan_kernel(
    logits: tl.tensor,
    slots: tl.tensor,
    parameters: tl.tensor,
    seen: tl.tensor,
    figures: tl.tensor,  # float32 [rows, 4, chunks]: raw highest, raw sum, adjusted highest, sum of tempered weights
    firsts: tl.tensor,  # int32 [rows, chunks]: the first of those with the adjusted highest
    highest: tl.tensor,  # float32 [rows, groups], of rows with limits
    row_stride: tl.tensor,
    vocabulary: tl.tensor,
    WORDS: tl.constexpr,
    CHUNK: tl.constexpr,
    GROUP: tl.constexpr,
) -> None:
    await_inputs()
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    chunks = tl.num_programs(1)
    slot = tl.load(slots + row).to(tl.int64)
    words = parameters + slot * WORDS
    temperature, top_k, top_p, min_p, penalty = asked_of(words)

    group = chunk * (CHUNK // GROUP) + tl.arange(0, CHUNK // GROUP)
    at = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    inside = at < vocabulary
    raw = tl.load(logits + row * row_stride + at, mask=inside, other=float("-inf")).to(tl.float32)
    # A chunk of -inf alone has no weights, and must not subtract -inf from itself.
    raw_top = tl.max(tl.max(raw, 1), 0)
    raw_sum = tl.sum(tl.sum(tl.exp(raw - tl.where(raw_top == float("-inf"), 0.0, raw_top)), 1), 0)

    x = adjusted(raw, seen + slot * vocabulary + at, inside, penalty)
    tops = tl.max(x, 1)
    top = tl.max(tops, 0)
    first = tl.min(tl.min(tl.where(x == top, at, vocabulary - 1), 1), 0)
    weight = raw_sum
    if (temperature > 0) & ((temperature != 1.0) | (penalty != 1.0)):
        inverse = 1.0 / temperature
        weight = tl.sum(tl.sum(tl.exp((x - tl.where(top == float("-inf"), 0.0, top)) * inverse), 1), 0)

    out = figures + row * 4 * chunks + chunk
    tl.store(out, raw_top)
    tl.store(out + chunks, raw_sum)
    tl.store(out + 2 * chunks, top)
    tl.store(out + 3 * chunks, weight)
    tl.store(firsts + row * chunks + chunk, first)
    if has_limits(temperature, top_k, top_p, min_p, vocabulary):
        tl.store(highest + row * chunks * (CHUNK // GROUP) + group, tops)


# Slices of a step's metadata and of what is drawn, of any alignment.
@jit(do_not_specialize=["slots", "positions", "tokens", "logprobs"])
def pick_kernel(
    logits: tl.tensor,
    slots: tl.tensor,
    positions: tl.tensor,
    parameters: tl.tensor,
    seen: tl.tensor,
    figures: tl.tensor,
    firsts: tl.tensor,
    listed: tl.tensor,
    counts: tl.tensor,
    bounds: tl.tensor,
    tokens: tl.tensor,  # int32 [rows]
    logprobs: tl.tensor,  # float32 [rows]
    last_tokens: tl.tensor,  # int64 [slots + 1]
    row_stride: tl.tensor,
    vocabulary: tl.tensor,
    chunks: tl.tensor,
    groups: tl.tensor,
    WORDS: tl.constexpr,
    CHUNK: tl.constexpr,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK_CHUNKS: tl.constexpr,
    UNUSED: tl.constexpr,
) -> None:
    await_inputs()
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    words = parameters + slot * WORDS
    temperature, top_k, top_p, min_p, penalty = asked_of(words)
    row_logits = logits + row * row_stride
    row_seen = seen + slot * vocabulary

    chunk = tl.arange(0, BLOCK_CHUNKS)
    present = chunk < chunks
    there = figures + row * 4 * chunks + chunk
    tops = tl.load(there + 2 * chunks, mask=present, other=float("-inf"))
    top = tl.max(tops, 0)
    first = tl.load(firsts + row * chunks + chunk, mask=present & (tops == top), other=vocabulary - 1)
    token = tl.min(first, 0)

    if temperature > 0:
        seed = tl.load(words + 6).to(tl.uint32, bitcast=True).to(tl.uint64)
        seed |= tl.load(words + 7).to(tl.uint32, bitcast=True).to(tl.uint64) << 32
        number = uniform(seed, tl.load(words + 5), tl.load(positions + row))
        inverse = 1.0 / temperature
        weights = tl.load(there + 3 * chunks, mask=present, other=0.0) * tl.exp((tops - top) * inverse)
        limited = has_limits(temperature, top_k, top_p, min_p, vocabulary)
        row_listed = listed + row * groups
        if limited:
            unused = tl.where(penalty == 1.0, UNUSED, 0).to(tl.int64)
            count = tl.load(counts + row)
            tiles = tl.cdiv(count, TILE)
            listed_ones = row_logits, row_seen, row_listed, count, vocabulary, vocabulary, penalty
            floor = tl.load(bounds + row)
            total = tl.sum(weights, 0)
            if (top_k > 0) & (top_k < vocabulary):
                floor = lowest_kept(
                    listed_ones, tiles, top, inverse, unused, floor, top_k.to(tl.float32), False, TILE, GROUP
                )
                total = weight_of_kept(listed_ones, tiles, top, inverse, floor, 0.0, TILE, GROUP).to(tl.float32)
            if top_p < 1:
                floor = lowest_kept(listed_ones, tiles, top, inverse, unused, floor, top_p * total, True, TILE, GROUP)
            mark = number * weight_of_kept(listed_ones, tiles, top, inverse, floor, min_p, TILE, GROUP)
            begin = vocabulary + 0
        else:
            floor = tl.full([], float("-inf"), tl.float32)
            running = tl.cumsum(weights.to(tl.float64), 0)
            mark = number * tl.sum(tl.where(chunk == chunks - 1, running, 0.0), 0)
            there_chunk = tl.min(tl.where((running > mark) & (weights > 0), chunk, BLOCK_CHUNKS), 0)
            last_chunk = tl.max(tl.where(weights > 0, chunk, 0), 0)
            there_chunk = tl.minimum(there_chunk, last_chunk)
            mark -= tl.sum(tl.where(chunk == there_chunk - 1, running, 0.0), 0)
            count = 0
            tiles = CHUNK // GROUP // TILE
            begin = there_chunk * (CHUNK // GROUP)
        before = tl.full([], 0.0, tl.float64)
        found = vocabulary + 0
        last = token  # rounding may leave the mark beyond every sum: then it is the last that has a weight
        tile = 0
        while (found == vocabulary) & (tile < tiles):
            read = row_logits, row_seen, row_listed, count, begin, vocabulary, penalty
            at, x = read_tile(read, tile, TILE, GROUP)
            weight = tl.exp((x - top) * inverse)
            weight = tl.where((x >= floor) & (weight >= min_p), weight, 0.0)
            running = before + tl.cumsum(weight.to(tl.float64), 0)
            # A running sum of many threads may differ in its last bits between neighbours: a weight is asked for.
            found = tl.min(tl.where((running > mark) & (weight > 0), at, vocabulary), 0)
            heaviest = tl.max(tl.where(weight > 0, at, -1), 0)
            last = tl.where(heaviest >= 0, heaviest, last)
            before += tl.sum(weight.to(tl.float64), 0)
            tile += 1
        token = tl.where(found < vocabulary, found, last)
    tl.store(tokens + row, token)
    tl.store(last_tokens + slot, token.to(tl.int64))
    if penalty != 1.0:
        tl.store(row_seen + token, 1)
    raw_tops = tl.load(there, mask=present, other=float("-inf"))
    raw_top = tl.max(raw_tops, 0)
    raw_sum = tl.sum(tl.load(there + chunks, mask=present, other=0.0) * tl.exp(raw_tops - raw_top), 0)
    raw_token = tl.load(row_logits + token).to(tl.float32)
    tl.store(logprobs + row, raw_token - raw_top - tl.log(raw_sum))


def sample(
    logits: Tensor,
    slots: Tensor,
    positions: Tensor,
    parameters: Tensor,
    seen: Tensor,
    last_tokens: Tensor,
    *,
    limited: bool,
) -> Tensor:
    """Draws a token a row: int32 `[2, rows]`, the tokens and the bits of their log-probabilities, float32 under the raw
    logits; one copy takes both to the host.

    logits `[rows, vocabulary]` with adjacent columns; slots and positions int32 `[rows]`; parameters int32
    `[slots + 1, WORDS]`, of which zeros mean greedy; seen uint8 `[slots + 1, vocabulary]`, read and written for slots
    with a repetition penalty alone; last_tokens int64 `[slots + 1]`, where the tokens are kept too. `limited` tells
    whether any row may limit its tokens by top-k, top-p or min-p. Nothing waits for the device.
    """
    rows, vocabulary = logits.shape
    group = GROUP * next_power_of_two(-(-vocabulary // (GROUP * MOST_GROUPS)))
    chunks = -(-vocabulary // CHUNK)
    groups = chunks * (CHUNK // group)

    def empty(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=logits.device)

    figures, firsts = empty(rows, 4, chunks, dtype=torch.float32), empty(rows, chunks)
    highest, listed = empty(rows, groups, dtype=torch.float32), empty(rows, groups)
    counts, bounds = empty(rows), empty(rows, dtype=torch.float32)
    drawn = empty(2, rows)
    stride, unused, block_chunks = logits.stride(0), UNUSED_BITS[logits.dtype], next_power_of_two(chunks)
    scanned = logits, slots, parameters, seen, figures, firsts, highest, stride, vocabulary, WORDS, CHUNK, group
    # Nothing is fused: a row's bits are the same in every kernel.
    launch(scan_kernel, (rows, chunks), scanned, fused=False, num_warps=4)
    if limited:
        over = vocabulary, chunks, groups, WORDS, block_chunks, next_power_of_two(groups), group, unused
        chosen = slots, parameters, figures, highest, listed, counts, bounds, *over
        launch(groups_kernel, (rows,), chosen, fused=False, num_warps=8)
    read = logits, slots, positions, parameters, seen, figures, firsts, listed, counts, bounds
    sizes = stride, vocabulary, chunks, groups, WORDS, CHUNK, group, TILE * GROUP // group, block_chunks, unused
    picked = *read, drawn[0], drawn[1].view(torch.float32), last_tokens, *sizes
    # Left alone, ptxas spills a few registers to fit more programs.
    launch(pick_kernel, (rows,), picked, fused=False, num_warps=4, maxnreg=128)
    return drawn
