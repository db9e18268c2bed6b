/* Writing to the paged cache. */
#include "common.h"

struct store {
    struct part part;         /* rows: tokens */
    void *k_cache, *v_cache;  /* [blocks, kv_heads, head_dim, block] and [blocks, kv_heads, block, head_dim] */
    const void *k, *v;        /* [tokens, kv_heads, head_dim], tokens k_stride and v_stride apart */
    const int32_t *blocks, *offsets; /* [tokens] */
    long kv_heads, head_dim, block, k_stride, v_stride;
};

ALWAYS void store(const struct store *s, long from, long to, const int half) {
    const long dim = s->head_dim, block = s->block, bytes = half ? 2 : 4;
    for (long t = from; t < to; t++)
        for (long h = 0; h < s->kv_heads; h++) {
            const long at = (s->blocks[t] * s->kv_heads + h) * dim * block, offset = s->offsets[t];
            const char *k = (const char *)s->k + (t * s->k_stride + h * dim) * bytes;
            const char *v = (const char *)s->v + (t * s->v_stride + h * dim) * bytes;
            /* A value goes to a line of its own; those of the next head are sent for meanwhile. */
            const int last = h + 1 == s->kv_heads;
            if (!last || t + 1 < to) {
                const long next = (s->blocks[t + last] * s->kv_heads + (last ? 0 : h + 1)) * dim * block + s->offsets[t + last];
                for (long d = 0; d < dim; d++) __builtin_prefetch((char *)s->k_cache + (next + d * block) * bytes, 1);
            }
            if (half) for (long d = 0; d < dim; d++) ((uint16_t *)s->k_cache)[at + d * block + offset] = ((uint16_t *)k)[d];
            else for (long d = 0; d < dim; d++) ((float *)s->k_cache)[at + d * block + offset] = ((float *)k)[d];
            memcpy((char *)s->v_cache + (at + offset * dim) * bytes, v, dim * bytes);
        }
}

/* Puts tokens' K and V into the paged cache. */
long store_kv(void *of) {
    struct store *s = of;
    const long tokens = s->part.rows, some = some_rows(s->kv_heads * s->head_dim);
    for (long from, to; take(&s->part, tokens, some, &from, &to); done(&s->part, from, to))
        if (s->part.half) store(s, from, to, 1); else store(s, from, to, 0);
    return tokens;
}
