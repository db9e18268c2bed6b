/* Attention over the paged cache. Each row is a query by itself; those of one prompt that follow each other are answered
 * together, so that what they see is read once for all of them.
 *
 * A row's keys are taken a segment at a time, and the softmax goes on from segment to segment: its highest score so far
 * and the sum of the weights are kept, and what is summed already shrinks when the highest grows (M. Milakov, N.
 * Gimelshein, Online normalizer calculation for softmax, 2018). Within a segment all heads of a block are read one after
 * the other, as they lie: the processor fetches ahead what goes on, and not what begins anew for every head.
 */
#include "cache.h"

#define MOST 8                 /* queries of one KV head that are answered together */
#define SCORED (REGISTERS / 4) /* of them, whose scores fit the registers */
#define SUMS (REGISTERS / 8)   /* of them, whose sums of values do */
#define SCORES 16384           /* that stay near a core */

struct attention {
    struct part part;   /* rows: queries */
    void *out;          /* [rows, kv_heads * group, head_dim] */
    const void *q;      /* as out */
    const void *k, *v;  /* as `cache.h` has them */
    const int32_t *tables, *starts, *lengths; /* row r owns tables[starts[r] ...], and sees lengths[r] keys; 0: its out is left alone */
    const float *sinks; /* [heads], or NULL */
    long kv_heads, group, head_dim, block, window; /* window 0: none */
    float scale, softcap; /* softcap 0: none */
    int kind;           /* of k and v */
};

/* What is answered together: `tokens` rows from `row` on, and of them the queries of the KV heads [kv, kv_end). Query i
 * of a KV head is that of token i / group. By query, KV head by KV head: `scores` of a segment of `width` keys; its
 * `query` and its `sum` of values [head_dim]; the `high`est score so far, the `total` of the weights, and by how much
 * what was summed before `shrinks`. */
struct tile {
    long row, tokens, kv, kv_end, width;
    float *scores, *query, *sum, *high, *total, *shrinks;
};

ALWAYS long first_seen(const struct attention *a, long row) {
    const long length = a->lengths[row];
    return a->window && length > a->window ? length - a->window : 0;
}

/* Scores of `count` queries over a block of keys of one head. What is read next is fetched while this is computed: the
 * processor's own guesses end with a page. */
ALWAYS void score(const struct attention *a, const char *keys, const char *ahead, const float *query, float *scores,
                  long width, const int count, const int kind) {
    const long dim = a->head_dim, block = a->block, bytes = kind_bytes(kind);
    for (long lane = 0; lane < block; lane += LANES) {
        vec even[SCORED], odd[SCORED];
        for (int i = 0; i < count; i++) even[i] = odd[i] = (vec){0};
#ifdef __AVX512BF16__
        if (kind == HALF) {
            /* Two values of each key side by side, as the processor multiplies them. */
            const words order = numbered() * 0x10001 + 0x100000;
            for (long d = 0; d < dim; d += 4)
                for (int step = 0; step < 2; step++) {
                    fetch(ahead + ((d + 2 * step) * block + lane) * bytes);
                    if (block > LANES) fetch(ahead + ((d + 2 * step + 1) * block + lane) * bytes);
                    const uint16_t *line = (const uint16_t *)keys + (d + 2 * step) * block + lane;
                    const __m512i one = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)line));
                    const __m512i two = _mm512_inserti64x4(one, _mm256_loadu_si256((const __m256i *)(line + block)), 1);
                    const __m512i pairs = _mm512_permutexvar_epi16((__m512i)order, two);
                    for (int i = 0; i < count; i++) {
                        const __m512i pair = _mm512_set1_epi32(((const int32_t *)(query + i * dim))[d / 2 + step]);
                        if (step) odd[i] = (vec)_mm512_dpbf16_ps((__m512)odd[i], (__m512bh)pairs, (__m512bh)pair);
                        else even[i] = (vec)_mm512_dpbf16_ps((__m512)even[i], (__m512bh)pairs, (__m512bh)pair);
                    }
                }
        } else
#endif
            for (long d = 0; d < dim; d += 2) {
                if (kind < INT8 || d % 4 == 0) fetch(ahead + (d * block + lane) * bytes);
                if (kind < INT8) fetch(ahead + ((d + 1) * block + lane) * bytes);
                const vec one = cached_lanes(keys, d * block + lane, kind);
                const vec two = cached_lanes(keys, (d + 1) * block + lane, kind);
                for (int i = 0; i < count; i++) {
                    even[i] += query[i * dim + d] * one;
                    odd[i] += query[i * dim + d + 1] * two;
                }
            }
        const vec scale = kind < INT8 ? (vec){0} + a->scale : scales_of(keys + dim * block + lane, kind) * a->scale;
        for (int i = 0; i < count; i++) *(vec *)(scores + i * width + lane) = (even[i] + odd[i]) * scale;
    }
}

/* The same of latents, which lie one after the other. */
ALWAYS void score_latents(const struct attention *a, const char *keys, const char *ahead, const float *query,
                          float *scores, long width, const int count, const int kind) {
    const long dim = a->head_dim, block = a->block, bytes = kind_bytes(kind);
    for (long j = 0; j < block; j++) {
        vec sums[SCORED];
        for (int i = 0; i < count; i++) sums[i] = (vec){0};
        for (long at = j * dim * bytes; at < (j + 1) * dim * bytes; at += 64) fetch(ahead + at);
        long d = 0;
#ifdef __AVX512BF16__
        if (kind == HALF) /* pairs, as `take_query` leaves those of the queries */
            for (; d < dim; d += 2 * LANES) {
                const __mmask32 there = dim - d < 2 * LANES ? 0xffff : 0xffffffff;
                const __m512i pairs = _mm512_maskz_loadu_epi16(there, (const uint16_t *)keys + j * dim + d);
                for (int i = 0; i < count; i++) {
                    const __m512i asked = _mm512_maskz_loadu_epi16(there, (const uint16_t *)(query + i * dim) + d);
                    sums[i] = (vec)_mm512_dpbf16_ps((__m512)sums[i], (__m512bh)pairs, (__m512bh)asked);
                }
            }
#endif
        for (; d < dim; d += LANES) {
            const vec key = cached_lanes(keys, j * dim + d, kind);
            for (int i = 0; i < count; i++) sums[i] += *(const vec *)(query + i * dim + d) * key;
        }
        for (int i = 0; i < count; i++) scores[i * width + j] = summed(sums[i]) * a->scale;
    }
    if (kind >= INT8)
        for (long lane = 0; lane < block; lane += LANES) {
            const vec scales = scales_of(keys + dim * block + lane, kind);
            for (int i = 0; i < count; i++) *(vec *)(scores + i * width + lane) *= scales;
        }
}

/* The queries of a token and KV head as `score` and `score_latents` read them. */
ALWAYS void take_query(const struct attention *a, const void *q, float *query, const int half, const int kind) {
#ifdef __AVX512BF16__
    if (kind == HALF) {
        memcpy(query, q, 2 * a->head_dim);
        return;
    }
#endif
    for (long d = 0; d < a->head_dim; d++) query[d] = get(q, d, half);
}

/* Of the `seen` scores of a segment, those of keys [begin, end) become weights, the others zero. */
ALWAYS void weigh(const struct attention *a, float *s, long begin, long end, long seen, float *high, float *total,
                  float *shrinks) {
    const vec least = (vec){0} - INFINITY;
    const integers count = (integers)numbered();
    vec tops = least, sums = {0};
    float top = *high;
    for (long i = 0; i < seen; i += LANES) {
        vec x = *(vec *)(s + i);
        if (a->softcap) { /* tanh x = 1 - 2 / (e^2x + 1) */
            const float cap = a->softcap;
            x = cap * (1.0f - over((vec){0} + 2.0f, exponentials(2.0f * x / cap) + 1.0f));
        }
        x = chosen((words)(count + (int32_t)i >= (int32_t)begin) & (words)(count + (int32_t)i < (int32_t)end), x, least);
        tops = chosen((words)(tops > x), tops, x);
        *(vec *)(s + i) = x;
    }
    const float here = highest(tops);
    top = here > top ? here : top;
    for (long i = 0; i < seen; i += LANES) {
        const vec x = *(vec *)(s + i), weight = chosen((words)(x == least), (vec){0}, exponentials(x - top));
        *(vec *)(s + i) = weight;
        sums += weight;
    }
    *shrinks = *high == top ? 1.0f : exponential(*high - top); /* of the first segment nothing was summed before */
    *total = *total * *shrinks + summed(sums);
    *high = top;
}

/* Four vectors of values. Those of bfloat16 come as the lower and the upper halves of words, sixteen at a time. */
ALWAYS void get_values(vec x[4], const void *values, long at, const int kind) {
    for (int i = 0; i < 4; i++) {
        if (kind != HALF) x[i] = cached_lanes(values, at + i * LANES, kind);
        else if (i % 2) x[i] = (vec)(*(const words *)((const uint16_t *)values + at + (i - 1) * LANES) & 0xffff0000);
        else x[i] = (vec)(*(const words *)((const uint16_t *)values + at + i * LANES) << 16);
    }
}

/* As `add_values`, so many vectors of them: with each query's they are as many sums that do not wait for each other. */
ALWAYS void add_columns(const char *values, const char *ahead, const float *weights, long width, long low, long high,
                        long d, long dim, float *sum, const float *shrinks, const int count, const int wide,
                        const int kind) {
    const long bytes = kind_bytes(kind), lines = (bytes * wide * LANES + 63) / 64;
    vec all[SUMS][4];
    for (int q = 0; q < count; q++)
        for (int i = 0; i < wide; i++) all[q][i] = *(vec *)(sum + q * dim + i * LANES) * shrinks[q];
    for (long j = low; j < high; j++) {
        vec x[4];
        for (int line = 0; line < lines; line++) fetch(ahead + (j * dim + d) * bytes + line * 64);
        if (wide == 4) get_values(x, values, j * dim + d, kind);
        else for (int i = 0; i < wide; i++) x[i] = cached_lanes(values, j * dim + d + i * LANES, kind);
        for (int q = 0; q < count; q++) for (int i = 0; i < wide; i++) all[q][i] += weights[q * width + j] * x[i];
    }
    for (int q = 0; q < count; q++)
        for (int i = 0; i < wide; i++) *(vec *)(sum + q * dim + i * LANES) = all[q][i];
}

/* Adds the values of keys [low, high) of a block of one head, times the weights of `count` queries. */
ALWAYS void add_values(const struct attention *a, const char *values, const char *ahead, const float *weights,
                       long width, long low, long high, float *sum, const float *shrinks, const int count,
                       const int kind) {
    const long dim = a->head_dim;
    for (long d = 0; d < dim;) {
        const long left = dim - d, wide = left >= 4 * LANES ? 4 : left >= 2 * LANES ? 2 : 1;
#define COLUMNS(wide) add_columns(values, ahead, weights, width, low, high, d, dim, sum + d, shrinks, count, wide, kind)
        if (wide == 4) COLUMNS(4);
        else if (wide == 2) COLUMNS(2);
        else COLUMNS(1);
#undef COLUMNS
        d += wide * LANES;
    }
}

/* What was summed, over the total of its weights. */
ALWAYS void put_answer(void *out, const float *sum, long dim, float total, const int half, const int kind) {
    for (long d = 0; d < dim;) {
        if (kind == HALF && dim - d >= 4 * LANES) { /* as `get_values` has them */
            for (int i = 0; i < 4; i += 2, d += 2 * LANES) {
                const halves lower = nearest(*(const vec *)(sum + d) / total);
                const halves upper = nearest(*(const vec *)(sum + d + LANES) / total);
                *(words *)((uint16_t *)out + d) =
                    __builtin_convertvector(lower, words) | __builtin_convertvector(upper, words) << 16;
            }
        } else {
            put_lanes(out, d, *(const vec *)(sum + d) / total, half);
            d += LANES;
        }
    }
}

ALWAYS void answer(const struct attention *a, const struct tile *t, const int half, const int kind) {
    const long dim = a->head_dim, block = a->block, width = t->width, size = head_bytes(dim, block, kind);
    const long queries = t->tokens * a->group, all = queries * (t->kv_end - t->kv);
    const long last = t->row + t->tokens - 1, length = a->lengths[last], blocks = (length + block - 1) / block;
    const int32_t *table = a->tables + a->starts[t->row];
    const int latent = a->k == a->v;

    for (long i = 0; i < all; i++) {
        const long row = t->row + i % queries / a->group, head = (t->kv + i / queries) * a->group + i % a->group;
        take_query(a, part(a->q, (row * a->kv_heads * a->group + head) * dim, half), t->query + i * dim, half, kind);
        t->high[i] = a->sinks ? a->sinks[head] : -INFINITY;
        t->total[i] = a->sinks ? 1.0f : 0.0f;
    }
    memset(t->sum, 0, all * dim * sizeof(float));
    for (long from = first_seen(a, t->row) / block; from < blocks;) {
        const long segment = width / block, end = (from / segment + 1) * segment, to = end < blocks ? end : blocks;
        const long at = from * block, seen = (to - from) * block;
        for (long b = from; b < to; b++)
            for (long kv = t->kv; kv < t->kv_end; kv++) {
                const char *keys = (const char *)a->k + (table[b] * a->kv_heads + kv) * size;
                const char *ahead = b + 1 < to ? (const char *)a->k + (table[b + 1] * a->kv_heads + kv) * size
                                               : (const char *)a->v + (table[from] * a->kv_heads + kv) * size;
                const long begin = (kv - t->kv) * queries;
                float *s = t->scores + begin * width + (b - from) * block;
                const float *q = t->query + begin * dim;
                long i = 0;
#define SCORE(count) \
    (latent ? score_latents(a, keys, ahead, q + i * dim, s + i * width, width, count, kind) \
            : score(a, keys, ahead, q + i * dim, s + i * width, width, count, kind)), i += count
                while (queries - i >= SCORED) SCORE(SCORED);
                if (SCORED > 4 && queries - i >= 4) SCORE(4);
                if (queries - i >= 2) SCORE(2);
                if (queries - i >= 1) SCORE(1);
#undef SCORE
            }
        for (long i = 0; i < all; i++) {
            const long row = t->row + i % queries / a->group, first = first_seen(a, row) - at, count = a->lengths[row] - at;
            const long high = count < 0 ? 0 : count < seen ? count : seen, low = first < 0 ? 0 : first < high ? first : high;
            weigh(a, t->scores + i * width, low, high, seen, t->high + i, t->total + i, t->shrinks + i);
        }
        for (long b = from; b < to; b++) {
            const long low = b == from ? (first_seen(a, t->row) > at ? first_seen(a, t->row) - at : 0) : 0;
            const long high = b == blocks - 1 ? length - b * block : block;
            for (long kv = t->kv; kv < t->kv_end; kv++) {
                const char *values = (const char *)a->v + (table[b] * a->kv_heads + kv) * size;
                const char *ahead = (const char *)a->v + (table[b + 1 < to ? b + 1 : b] * a->kv_heads + kv) * size;
                const long begin = (kv - t->kv) * queries, end = begin + queries;
                if (kind >= INT8) /* the weights of codes */
                    for (long lane = 0; lane < block; lane += LANES) {
                        const vec scales = scales_of(values + dim * block + lane, kind);
                        float *s = t->scores + (b - from) * block + lane;
                        for (long i = begin; i < end; i++) *(vec *)(s + i * width) *= scales;
                    }
                for (long i = begin; i < end;) {
                    const float *s = t->scores + i * width + (b - from) * block;
                    float *sum = t->sum + i * dim, *shrinks = t->shrinks + i;
#define ADD(count) add_values(a, values, ahead, s, width, low, high, sum, shrinks, count, kind), i += count
                    if (SUMS >= 4 && end - i >= 4) ADD(4);
                    else if (end - i >= 2) ADD(2);
                    else ADD(1);
#undef ADD
                }
            }
            if (b == from) for (long i = 0; i < all; i++) t->shrinks[i] = 1.0f;
        }
        from = to;
    }
    for (long i = 0; i < all; i++) {
        const long row = t->row + i % queries / a->group, head = (t->kv + i / queries) * a->group + i % a->group;
        void *out = part(a->out, (row * a->kv_heads * a->group + head) * dim, half);
        put_answer(out, t->sum + i * dim, dim, t->total[i], half, kind);
    }
}

/* Whether a row is the token after the row before it, so that one of both may answer for both. */
ALWAYS int follows(const struct attention *a, long row) {
    return row && a->starts[row] == a->starts[row - 1] && a->lengths[row - 1] && a->lengths[row] == a->lengths[row - 1] + 1;
}

/* The queries of all rows. */
long decode_attention(void *of) {
    struct attention *a = of;
    const long rows = a->part.rows, kv_heads = a->kv_heads, group = a->group;
    const long together = group < MOST ? MOST / group : 1; /* tokens */
    /* Whole rows where there are many, else head by head. */
    const int whole = rows >= 4 * omp_get_num_threads();
    const long all = whole ? rows : rows * kv_heads, queries = together * group * kv_heads;
    const long segment = SCORES / queries / a->block; /* the same for any rows, and so the rounding */
    struct tile t = {.width = (segment ? segment : 1) * a->block};
    t.scores = aligned_alloc(64, (queries * (t.width + 2 * a->head_dim + 3) * sizeof(float) + 63) / 64 * 64);
    if (!t.scores) {
        a->part.failed = 1;
        return 0;
    }
    t.query = t.scores + queries * t.width, t.sum = t.query + queries * a->head_dim;
    t.high = t.sum + queries * a->head_dim, t.total = t.high + queries, t.shrinks = t.total + queries;
    for (long from, to; take(&a->part, all, 1, &from, &to); done(&a->part, from, to)) {
        t.row = whole ? from : from / kv_heads;
        t.kv = whole ? 0 : from % kv_heads, t.kv_end = whole ? kv_heads : t.kv + 1;
        if (!a->lengths[t.row]) continue; /* it is answered elsewhere */
        if (follows(a, t.row) && (a->lengths[t.row] - 1) % together) continue; /* an earlier row answers it */
        t.tokens = 1;
        while (t.row + t.tokens < rows && (a->lengths[t.row + t.tokens] - 1) % together && follows(a, t.row + t.tokens)) t.tokens++;
        if (a->kind == INT8) answer(a, &t, a->part.half, INT8);
        else if (a->kind == FP8) answer(a, &t, a->part.half, FP8);
        else if (a->part.half) answer(a, &t, 1, HALF);
        else answer(a, &t, 0, FLOAT);
    }
    free(t.scores);
    return all;
}
