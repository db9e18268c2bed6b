"""Problems over caches of codes, and their checks, that run on any device."""

from dataclasses import replace

import torch

from engine.kernels.attention.paged_attention import paged_attention
from engine.kernels.kv_codes import allocate, apart
from engine.kernels.place_kv import HeadNorms, place_kv
from engine.kernels.quantized_kv import CODES, dequantize, quantize
from engine.kernels.rms_norm import Rounding
from engine.kernels.store_kv import store_kv
from tests.engine.kernels.paged_case import TOLERANCE, Case, Shape, make_case, make_store

KINDS = list(CODES.values())


def coded(case: Case, codes: torch.dtype) -> tuple[Case, Case]:
    """The problem over codes; and over what they stand for, for the oracle. What nothing may read is the largest
    code."""
    right, caches = [], []
    for cache in (case.k_cache,) if case.k_cache is case.v_cache else (case.k_cache, case.v_cache):
        given = quantize(cache.nan_to_num(1e9), codes)
        held = allocate(*cache.shape, codes, cache.device)
        values, scales = apart(held)
        assert scales is not None
        values.copy_(given.values)
        scales.copy_(given.scales)
        caches.append(held)
        right.append(dequantize(*given, torch.float64))
    return replace(case, k_cache=caches[0], v_cache=caches[-1]), replace(case, k_cache=right[0], v_cache=right[-1])


def check(shape: Shape, seed: int, codes: torch.dtype, device: str = "cpu") -> None:
    """Attention over codes agrees with the oracle over what they stand for."""
    case, right = coded(make_case(shape, seed, device), codes)
    expected, tolerance = right.expected(), TOLERANCE[case.q.dtype]
    torch.testing.assert_close(case.run(paged_attention).double(), expected, rtol=tolerance, atol=tolerance)


def check_stored(seed: int, dtype: torch.dtype, codes: torch.dtype, device: str = "cpu") -> None:
    """What is stored, of every size, is torch's to the bit."""
    k, v, cache, _, slots = make_store(seed, device, dtype).arguments
    sizes = torch.logspace(-6, 3, len(k), device=device)[:, None, None].to(dtype)
    k, v = k * sizes, v * sizes
    caches = [allocate(*cache.shape, codes, cache.device) for _ in range(2)]
    store_kv(k, v, *caches, slots)
    same(caches, (k, v), slots)


def check_stored_latents(codes: torch.dtype, device: str = "cpu") -> None:
    """What is K and V at once is stored once."""
    k, _, cache, _, slots = make_store(3, device, torch.float32).arguments
    held = allocate(*cache.shape, codes, cache.device)
    store_kv(k, k, held, held, slots)
    same([held], (k, k), slots)


def check_placed(
    head_dim: int, norms: bool, codes: torch.dtype, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> None:
    """Placing stores what storing what it placed in a plain cache would: to the bit, but where a compiled norm of
    float32 is summed in another order for each kind of cache."""
    random, tokens, heads, kv_heads = torch.Generator().manual_seed(head_dim), 9, 6, 3

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random).to(device, dtype)

    q, k, v = (draw(tokens, n, head_dim) for n in (heads, kv_heads, kv_heads))
    tables = draw(2, tokens, head_dim)
    normed = HeadNorms(*draw(2, head_dim), 1e-6, Rounding.TWICE) if norms else None
    slots = torch.randperm(48, generator=random)[:tokens]
    slots[4] = -1
    slots = slots.to(device)
    plain = [torch.zeros(3, 16, kv_heads, head_dim, device=device, dtype=dtype) for _ in range(2)]
    caches = [allocate(3, 16, kv_heads, head_dim, codes, q.device) for _ in range(2)]
    out = place_kv(q, k, v, tuple(tables), normed, tuple(plain), slots)
    summed = norms and dtype is torch.float32 and device != "cpu"
    placed = place_kv(q, k, v, tuple(tables), normed, tuple(caches), slots)
    torch.testing.assert_close(placed, out, rtol=1e-5 * summed, atol=1e-5 * summed)
    at = slots.clamp(min=0)
    same(caches, tuple(cache[at // 16, at % 16] for cache in plain), slots, int(summed))


def same(
    caches: list[torch.Tensor], given: tuple[torch.Tensor, torch.Tensor], slots: torch.Tensor, apart_by: int = 0
) -> None:
    """Codes are those given, or so many codes from them; scales are."""
    size, kept = caches[0].shape[1], slots >= 0
    for cache, x in zip(caches, given):
        at = slots[kept] // size, slots[kept] % size
        right = quantize(x[kept], cache.dtype)
        values, scales = apart(cache)
        assert scales is not None
        assert torch.equal(scales[at], right.scales)
        assert (_order(values[at]) - _order(right.values)).abs().max() <= apart_by
        if not apart_by:
            assert torch.equal(values[at], right.values), "of zeros the sign too"
        values[at], scales[at] = 0, 0
        assert not cache.any()  # nothing else was written


def _order(codes: torch.Tensor) -> torch.Tensor:
    """Each code's place among all, by what it stands for."""
    wide = codes.short()
    return wide if codes.dtype is torch.int8 else (wide & 127) * (1 - 2 * (wide >> 7))
