"""Which tokens top-k, top-p and min-p keep: exact thresholds, searched by the order of float32 numbers.

`groups` lists the groups of neighbouring tokens that can hold a kept one, judging by each group's highest value: about
as many as top-k, and few for a top-p over a peaked distribution. The lowest value that is kept is searched among them.
"""

from __future__ import annotations

from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import jit, tl


@jit
def as_float(words: tl.tensor) -> tl.tensor:
    return words.to(tl.float32, bitcast=True)


@jit
def asked_of(words: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """A slot's temperature, top-k, top-p, min-p and repetition penalty; a slot that nobody had has zeros, of which the
    penalty means none."""
    penalty = as_float(tl.load(words + 4))
    top_p, min_p = as_float(tl.load(words + 2)), as_float(tl.load(words + 3))
    return as_float(tl.load(words)), tl.load(words + 1), top_p, min_p, tl.where(penalty > 0, penalty, 1.0)


@jit
def rank(value: tl.tensor, unused: tl.tensor) -> tl.tensor:
    """The place of a float32 among those that differ beyond their unused low bits, as int64: ordered as they are."""
    bits = value.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64) >> unused


@jit
def value_at(place: tl.tensor, unused: tl.tensor) -> tl.tensor:
    """The float32 at a rank: the one whose unused bits are alike, so of those that share it the one nearest to 0."""
    key = (place << unused) | tl.where(place < 0, (1 << unused) - 1, 0)
    bits = key.to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@jit
def adjusted(raw: tl.tensor, seen: tl.tensor, mask: tl.tensor, penalty: tl.tensor) -> tl.tensor:
    """Logits after the repetition penalty; zeros are positive, since ranks tell two zeros apart. `seen` are pointers,
    read only where there is a penalty."""
    x = raw
    if penalty != 1.0:
        # Division to the last bit, as the CPU's, without the subroutine that div_rn calls.
        inverse = 1.0 / penalty
        quotient = x * inverse
        quotient = tl.fma(tl.fma(-quotient, penalty, x), inverse, quotient)
        punished = tl.where(x > 0, quotient, x * penalty)
        x = tl.where(tl.load(seen, mask=mask, other=0) != 0, punished, x)
    return tl.where(x == 0, 0.0, x)


@jit
def has_limits(temperature, top_k, top_p, min_p, vocabulary):  # type: ignore[no-untyped-def]
    return (temperature > 0) & (((top_k > 0) & (top_k < vocabulary)) | (top_p < 1) | (min_p > 0))


@jit(do_not_specialize=["slots"])  # a slice of a step's metadata, of any alignment
def groups_kernel(
    slots: tl.tensor,
    parameters: tl.tensor,
    figures: tl.tensor,
    highest: tl.tensor,
    listed: tl.tensor,  # int32 [rows, groups]: those that can hold a kept token, in order
    counts: tl.tensor,  # int32 [rows]: how many they are
    bounds: tl.tensor,  # float32 [rows]: what is kept is at least this
    vocabulary: tl.tensor,
    chunks: tl.tensor,
    groups: tl.tensor,
    WORDS: tl.constexpr,
    BLOCK_CHUNKS: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    UNUSED: tl.constexpr,
) -> None:
    await_inputs()
    row = tl.program_id(0).to(tl.int64)
    words = parameters + tl.load(slots + row).to(tl.int64) * WORDS
    temperature, top_k, top_p, min_p, penalty = asked_of(words)
    if has_limits(temperature, top_k, top_p, min_p, vocabulary):
        group = tl.arange(0, BLOCK_GROUPS)
        tops = tl.load(highest + row * groups + group, mask=group < groups, other=float("-inf"))
        top = tl.max(tops, 0)
        if (top_k > 0) & (top_k < vocabulary):
            # The k-th highest of the groups' highest values: k tokens at least are as high.
            unused = tl.where(penalty == 1.0, UNUSED, 0).to(tl.int64)
            low = rank(tl.full([], float("-inf"), tl.float32), unused) - 1
            high = rank(top, unused)
            while high - low > 1:
                middle = (low + high) >> 1
                fewer = tl.sum((tops > value_at(middle, unused)).to(tl.int32), 0) < top_k
                high = tl.where(fewer, middle, high)
                low = tl.where(fewer, low, middle)
            bound = value_at(high, unused)
        else:
            # Tokens lighter than this would together not weigh what top-p drops. Rounding is allowed for.
            share = min_p
            dropped = 0.0
            if top_p < 1:
                chunk = tl.arange(0, BLOCK_CHUNKS)
                there = figures + row * 4 * chunks + chunk
                chunk_tops = tl.load(there + 2 * chunks, mask=chunk < chunks, other=float("-inf"))
                chunk_sums = tl.load(there + 3 * chunks, mask=chunk < chunks, other=0.0)
                dropped = (1.0 - top_p) * tl.sum(chunk_sums * tl.exp((chunk_tops - top) * (1.0 / temperature)), 0)
                share = dropped / vocabulary
            below = temperature * tl.log(tl.minimum(share, 1.0))
            bound = top + below - 1e-5 * (tl.abs(top) - below)
            if top_p < 1:
                # Nor would all tokens up to a value, be each as heavy as it, or as its group's highest, can be.
                most = tl.exp((tops - top) * (1.0 / temperature))
                none = tl.full([], 0, tl.int64)
                low, high = rank(bound, none), rank(top, none)
                near = (high - low) >> 10  # a higher bound only spares work
                while high - low > near + 1:
                    middle = (low + high) >> 1
                    value = value_at(middle, none)
                    each = tl.exp((value - top) * (1.0 / temperature))
                    mass = GROUP * tl.sum(tl.minimum(most, each), 0)
                    lighter = mass < 0.999 * dropped
                    low = tl.where(lighter, middle, low)
                    high = tl.where(lighter, high, middle)
                bound = value_at(low, none)
        chosen = (tops >= bound) & (group < groups)
        place = tl.cumsum(chosen.to(tl.int32), 0) - 1
        tl.store(listed + row * groups + place, group, mask=chosen)
        tl.store(counts + row, tl.sum(chosen.to(tl.int32), 0))
        tl.store(bounds + row, bound)


@jit
def read_tile(row, tile, TILE: tl.constexpr, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """A tile of groups of neighbouring tokens, in order: the tokens and their logits after the penalty, both
    `[TILE * GROUP]`, -inf beyond the vocabulary. The groups are the `count` listed ones, then `first` and on.
    """
    row_logits, row_seen, listed, count, first, vocabulary, penalty = row
    index = tl.arange(0, TILE * GROUP)
    entry = tile * TILE + index // GROUP
    group = tl.load(listed + entry, mask=entry < count, other=0)
    group = tl.where(entry < count, group, first + entry)
    at = group * GROUP + index % GROUP
    mask = at < vocabulary
    raw = tl.load(row_logits + at, mask=mask, other=float("-inf")).to(tl.float32)
    return at, adjusted(raw, row_seen + at, mask, penalty)


@jit
def lowest_kept(  # type: ignore[no-untyped-def]
    row, tiles, top, inverse, unused, low, limit, MASS: tl.constexpr, TILE: tl.constexpr, GROUP: tl.constexpr
):
    """The lowest value of at least `low` above which there are fewer tokens than `limit`, or less MASS. A search over
    ranks, four parts at a time; tokens are those of the row's `tiles` as `read_tile` reads them."""
    left = rank(low, unused) - 1
    right = rank(top, unused)  # nothing is above the highest
    while right - left > 1:
        step = tl.maximum((right - left) >> 2, 1)
        first, second, third = left + step, tl.minimum(left + 2 * step, right), tl.minimum(left + 3 * step, right)
        a, b, c = value_at(first, unused), value_at(second, unused), value_at(third, unused)
        above_a = tl.zeros([TILE * GROUP], tl.float32)
        above_b, above_c = above_a, above_a
        for tile in range(tiles):
            at, x = read_tile(row, tile, TILE, GROUP)
            if MASS:
                weight = tl.exp((x - top) * inverse)
            else:
                weight = tl.full([TILE * GROUP], 1.0, tl.float32)  # whole numbers, exact up to 2 ** 24
            above_a += tl.where(x > a, weight, 0.0)
            above_b += tl.where(x > b, weight, 0.0)
            above_c += tl.where(x > c, weight, 0.0)
        under_a, under_b = tl.sum(above_a, 0) < limit, tl.sum(above_b, 0) < limit
        under_c = tl.sum(above_c, 0) < limit
        left = tl.where(under_a, left, tl.where(under_b, first, tl.where(under_c, second, third)))
        right = tl.where(under_a, first, tl.where(under_b, second, tl.where(under_c, third, right)))
    return value_at(right, unused)


@jit
def weight_of_kept(  # type: ignore[no-untyped-def]
    row, tiles, top, inverse, floor, min_p, TILE: tl.constexpr, GROUP: tl.constexpr
):
    """The weight of those of the tiles' tokens that are of at least the floor and of at least min_p, float64."""
    kept = tl.zeros([TILE * GROUP], tl.float64)
    for tile in range(tiles):
        _, x = read_tile(row, tile, TILE, GROUP)
        weight = tl.exp((x - top) * inverse)
        kept += tl.where((x >= floor) & (weight >= min_p), weight, 0.0).to(tl.float64)
    return tl.sum(kept, 0)
