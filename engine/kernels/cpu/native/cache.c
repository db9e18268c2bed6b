/* Writing to the paged cache. */
#include "cache.h"

struct store {
    struct part part;         /* rows: tokens */
    void *k_cache, *v_cache;  /* as `cache.h` has them */
    const void *k, *v;        /* [tokens, kv_heads, head_dim], tokens k_stride and v_stride apart */
    const int32_t *blocks, *offsets; /* [tokens] */
    long kv_heads, head_dim, block, k_stride, v_stride;
    int kind;
};

/* A head's values as codes, a `stride` apart; gives back their scale. */
ALWAYS uint8_t put_codes(uint8_t *to, long stride, const void *from, long dim, const int half, const int kind) {
    integers peak = {0}; /* floats above zero are in the order of their bits */
    for (long d = 0; d < dim; d += LANES) {
        const integers x = (integers)get_lanes(from, d, half) & 0x7fffffff;
        peak = (integers)chosen((words)(x > peak), (vec)x, (vec)peak);
    }
    const uint8_t scale = nearest_scale(highest((vec)peak), kind);
    const float by = 1.0f / scale_of(scale);
    for (long d = 0; d < dim; d += LANES) {
        const bytes codes = coded(get_lanes(from, d, half) * by, kind);
        if (stride == 1) *(bytes *)(to + d) = codes;
        else for (int lane = 0; lane < LANES; lane++) to[(d + lane) * stride] = codes[lane];
    }
    return scale;
}

/* The keys of tokens that follow each other, value by value. */
ALWAYS void put_keys(void *to, const void *k, long block, long stride, long tokens, long dim, const int half) {
    for (long d = 0; d < dim; d++)
        for (long i = 0; i < tokens; i++)
            if (half) ((uint16_t *)to)[d * block + i] = ((const uint16_t *)k)[i * stride + d];
            else ((float *)to)[d * block + i] = ((const float *)k)[i * stride + d];
}

ALWAYS void store(const struct store *s, long from, long to, const int half, const int kind) {
    const long dim = s->head_dim, block = s->block, width = kind_bytes(kind), size = head_bytes(dim, block, kind);
    const int latent = s->k_cache == s->v_cache;
    for (long t = from, together; t < to; t += together) {
        together = 1; /* tokens whose keys lie side by side: a line of the cache is written once for all of them */
        while (kind < INT8 && t + together < to && s->blocks[t + together] == s->blocks[t]
               && s->offsets[t + together] == s->offsets[t] + together) together++;
        for (long h = 0; h < s->kv_heads; h++) {
            const long at = (s->blocks[t] * s->kv_heads + h) * size, offset = s->offsets[t];
            char *keys = (char *)s->k_cache + at, *values = (char *)s->v_cache + at;
            const void *k = part(s->k, t * s->k_stride + h * dim, half), *v = part(s->v, t * s->v_stride + h * dim, half);
            /* A value goes to a line of its own; those of the next head are sent for meanwhile. */
            const int last = h + 1 == s->kv_heads;
            if (!latent && together == 1 && (!last || t + 1 < to)) {
                const char *next = (char *)s->k_cache + (s->blocks[t + last] * s->kv_heads + (last ? 0 : h + 1)) * size;
                next += s->offsets[t + last] * width;
                for (long d = 0; d < dim; d++) __builtin_prefetch(next + d * block * width, 1);
            }
            if (kind == INT8 || kind == FP8) {
                uint8_t *of_keys = (uint8_t *)keys, *of_values = (uint8_t *)values;
                if (!latent) of_keys[dim * block + offset] = put_codes(of_keys + offset, block, k, dim, half, kind);
                of_values[dim * block + offset] = put_codes(of_values + offset * dim, 1, v, dim, half, kind);
            } else {
                if (!latent) put_keys(keys + offset * width, k, block, s->k_stride, together, dim, half);
                for (long i = 0; i < together; i++)
                    memcpy(values + (offset + i) * dim * width, part(v, i * s->v_stride, half), dim * width);
            }
        }
    }
}

/* Puts tokens' K and V into the paged cache. */
long store_kv(void *of) {
    struct store *s = of;
    const long tokens = s->part.rows, some = some_rows(s->kv_heads * s->head_dim);
    for (long from, to; take(&s->part, tokens, some, &from, &to); done(&s->part, from, to))
        if (s->kind == INT8) store(s, from, to, s->part.half, INT8);
        else if (s->kind == FP8) store(s, from, to, s->part.half, FP8);
        else if (s->part.half) store(s, from, to, 1, HALF);
        else store(s, from, to, 0, FLOAT);
    return tokens;
}
