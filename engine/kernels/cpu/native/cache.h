/* The paged cache: K is [blocks, kv_heads, head_dim, block], V [blocks, kv_heads, block, head_dim]. Where both are one,
 * latents, they lie as V. Of codes (`engine/kernels/quantized_kv.py` tells what they stand for), each head's part of a
 * block is followed by its scales, [block].
 */
#include "common.h"

enum { FLOAT, HALF, INT8, FP8 }; /* what a cache holds; the first two as `half` tells them */

#define LEAST_SCALE (107 << 23) /* the bits of 2^-20 */

/* Into a core's second cache. The first one waits for a few lines at a time, and meanwhile fetches nothing else: so a
 * step's K and V are read at 26 GB/s by two cores, where into the first it was 17. */
ALWAYS void fetch(const char *line) { __builtin_prefetch(line, 0, 2); }

typedef uint8_t bytes __attribute__((vector_size(LANES), aligned(1), may_alias));
typedef int8_t signed_bytes __attribute__((vector_size(LANES), aligned(1), may_alias));

ALWAYS long kind_bytes(const int kind) { return kind == FLOAT ? 4 : kind == HALF ? 2 : 1; }
/* Of a head's part of a block. */
ALWAYS long head_bytes(long dim, long block, const int kind) {
    return dim * block * kind_bytes(kind) + (kind >= INT8 ? block : 0);
}

ALWAYS float scale_of(uint8_t scale) { return as_float(((uint32_t)scale << 20) + LEAST_SCALE); }
/* The least scale by which values of up to `peak` have a code. */
ALWAYS uint8_t nearest_scale(float peak, const int kind) {
    const int32_t bits = as_bits(peak * (kind == INT8 ? 1.0f / 127.0f : 1.0f / 448.0f)), above = bits - LEAST_SCALE + 0xfffff;
    return above < 0 ? 0 : above >> 20 > 255 ? 255 : above >> 20;
}

ALWAYS bytes coded(vec x, const int kind) {
    const float most = kind == INT8 ? 127.0f : 448.0f;
    x = bounded(x, -most, most);
    if (kind == INT8) return __builtin_convertvector((words)(x + 12582912.0f) & 0xff, bytes);
    const words sign = (words)x >> 24 & 0x80, bits = (words)x & 0x7fffffff;
    const words normal = (bits - (120 << 23) + 0x7ffff + (bits >> 20 & 1)) >> 20;
    const words small = (words)((vec)bits * 512.0f + 12582912.0f) & 0xff;
    return __builtin_convertvector((words)chosen((words)(bits < 121 << 23), (vec)small, (vec)normal) | sign, bytes);
}

/* A vector of bytes, without and with a sign; see `widened`. */
ALWAYS words words_of(const void *from) {
#if defined __AVX2__ && !defined __AVX512F__
    return (words)_mm256_cvtepu8_epi32(_mm_loadl_epi64(from));
#else
    return __builtin_convertvector(*(const bytes *)from, words);
#endif
}
ALWAYS integers integers_of(const void *from) {
#if defined __AVX2__ && !defined __AVX512F__
    return (integers)_mm256_cvtepi8_epi32(_mm_loadl_epi64(from));
#else
    return __builtin_convertvector(*(const signed_bytes *)from, integers);
#endif
}

/* A vector of codes as whole numbers of scales; those of fp8 as so many 256 times as large, which a conversion gives as
 * it is. */
ALWAYS vec decoded(const void *from, const int kind) {
#ifdef __AVX512F__
    const __m128i codes = _mm_loadu_si128(from);
    if (kind == INT8) return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7); /* halves but for the sign, which is twice */
    return (vec)_mm512_cvtph_ps(_mm256_and_si256(wide, _mm256_set1_epi16((short)0xbfff)));
#else
    if (kind == INT8) return __builtin_convertvector(integers_of(from), vec);
    const words codes = words_of(from);
    const vec least = (vec)((codes & 0x7f) << 20) * 5.1922968585348276e33f; /* 2^112 */
    return (vec)((words)least | (codes & 0x80) << 24);
#endif
}
/* As many scales of what `decoded` gives. */
ALWAYS vec scales_of(const void *from, const int kind) {
    const words scales = words_of(from);
    return (vec)((scales << 20) + LEAST_SCALE + (kind == FP8 ? 8 << 23 : 0));
}

ALWAYS vec cached_lanes(const void *from, long i, const int kind) {
    return kind >= INT8 ? decoded((const char *)from + i, kind) : get_lanes(from, i, kind);
}
