/* Attention of decode rows over the paged cache. */
#include "common.h"

#define MOST 4 /* queries that are answered together */

struct attention {
    struct part part;   /* rows: queries */
    void *out;          /* [rows, kv_heads * group, head_dim] */
    const void *q;      /* as out */
    const void *k;      /* [blocks, kv_heads, head_dim, block] */
    const void *v;      /* [blocks, kv_heads, block, head_dim] */
    const int32_t *tables, *starts, *lengths; /* row r owns tables[starts[r] ...], and sees lengths[r] keys */
    const float *sinks; /* [heads], or NULL */
    long kv_heads, group, head_dim, block, window; /* window 0: none */
    float scale, softcap; /* softcap 0: none */
};

/* `heads` queries, from `head` on, that read one KV head; `scores` has room for `heads` rows of `width`. */
ALWAYS void attend(const struct attention *a, long row, long head, const int heads, const int half, float *scores,
                   long width, float *query) {
    const long dim = a->head_dim, block = a->block, length = a->lengths[row], kv_head = head / a->group;
    const long first = a->window && length > a->window ? length - a->window : 0;
    const long from = first / block, to = (length + block - 1) / block, bytes = half ? 2 : 4;
    const long size = dim * block * bytes; /* of one head's part of a block */
    const int32_t *table = a->tables + a->starts[row];
    const long at = (row * a->kv_heads * a->group + head) * dim;
    float total[MOST], peak[MOST];

    for (int h = 0; h < heads; h++)
        for (long d = 0; d < dim; d++) query[h * dim + d] = get(part(a->q, at + h * dim, half), d, half) * a->scale;
    for (long b = from; b < to; b++) {
        const char *keys = (const char *)a->k + (table[b] * a->kv_heads + kv_head) * size;
        /* The processor's own guesses end with a block: what is read next is fetched while this one is computed. */
        const char *next = (const char *)a->k + (table[b + 1 < to ? b + 1 : b] * a->kv_heads + kv_head) * size;
        const char *values = (const char *)a->v + (table[b] * a->kv_heads + kv_head) * size;
        for (long lane = 0; lane < block; lane += LANES) {
            vec even[MOST], odd[MOST];
            for (int h = 0; h < heads; h++) even[h] = odd[h] = (vec){0};
            for (long d = 0; d < dim; d += 2) {
                for (long line = d; line < d + 2 && !lane; line++) {
                    __builtin_prefetch(next + line * block * bytes);
                    __builtin_prefetch(values + line * block * bytes);
                }
                vec one = get_lanes(keys, d * block + lane, half), two = get_lanes(keys, (d + 1) * block + lane, half);
                for (int h = 0; h < heads; h++) {
                    even[h] += query[h * dim + d] * one;
                    odd[h] += query[h * dim + d + 1] * two;
                }
            }
            for (int h = 0; h < heads; h++) *(vec *)(scores + h * width + (b - from) * block + lane) = even[h] + odd[h];
        }
    }
    const long begin = first - from * block, end = length - from * block; /* of the scores, what is seen */
    for (int h = 0; h < heads; h++) {
        float *s = scores + h * width, high = a->sinks ? a->sinks[head + h] : -INFINITY, sum = 0;
        if (a->softcap) {
            const float cap = a->softcap;
#pragma omp simd
            for (long i = begin; i < end; i++) {
                float e = exponential(2.0f * s[i] / cap); /* tanh x = 1 - 2 / (e^2x + 1) */
                s[i] = cap * (1.0f - 2.0f / (e + 1.0f));
            }
        }
#pragma omp simd reduction(max : high)
        for (long i = begin; i < end; i++) high = s[i] > high ? s[i] : high;
#pragma omp simd reduction(+ : sum)
        for (long i = begin; i < end; i++) sum += s[i] = exponential(s[i] - high);
        peak[h] = high;
        total[h] = sum + (a->sinks ? exponential(a->sinks[head + h] - peak[h]) : 0.0f);
    }
    if (kv_head + 1 < a->kv_heads)
        for (long line = 0; line < size; line += 64)
            __builtin_prefetch((const char *)a->k + (table[from] * a->kv_heads + kv_head + 1) * size + line);
    for (long d = 0; d < dim;) {
        const int wide = dim - d >= 4 * LANES ? 4 : 1;
        vec sum[MOST][4];
        for (int h = 0; h < heads; h++) for (int i = 0; i < 4; i++) sum[h][i] = (vec){0};
        for (long b = from; b < to; b++) {
            const char *values = (const char *)a->v + (table[b] * a->kv_heads + kv_head) * size;
            const long low = b == from ? begin : 0, high = b == to - 1 ? length - b * block : block;
            const float *s = scores + (b - from) * block;
            if (wide == 4) {
                for (long j = low; j < high; j++) {
                    vec x[4];
                    for (int i = 0; i < 4; i++) x[i] = get_lanes(values, j * dim + d + i * LANES, half);
                    for (int h = 0; h < heads; h++) for (int i = 0; i < 4; i++) sum[h][i] += s[h * width + j] * x[i];
                }
            } else {
                for (long j = low; j < high; j++) {
                    vec x = get_lanes(values, j * dim + d, half);
                    for (int h = 0; h < heads; h++) sum[h][0] += s[h * width + j] * x;
                }
            }
        }
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < wide; i++)
                put_lanes(a->out, at + h * dim + d + i * LANES, sum[h][i] / total[h], half);
        d += wide * LANES;
    }
}

ALWAYS void attend_some(const struct attention *a, long row, long head, int heads, float *scores, long width,
                        float *query) {
    if (a->part.half) {
        if (heads == 4) attend(a, row, head, 4, 1, scores, width, query);
        else if (heads == 2) attend(a, row, head, 2, 1, scores, width, query);
        else attend(a, row, head, 1, 1, scores, width, query);
    } else {
        if (heads == 4) attend(a, row, head, 4, 0, scores, width, query);
        else if (heads == 2) attend(a, row, head, 2, 0, scores, width, query);
        else attend(a, row, head, 1, 0, scores, width, query);
    }
}

/* One query a row over the paged cache. */
long decode_attention(void *of) {
    struct attention *a = of;
    const long rows = a->part.rows, all = rows * a->kv_heads;
    long longest = 0;
    for (long r = 0; r < rows; r++) longest = a->lengths[r] > longest ? a->lengths[r] : longest;
    const long width = (longest / a->block + 2) * a->block; /* room for a row of scores */
    float *scores = malloc((4 * width + 4 * a->head_dim) * sizeof(float)), *query = scores + 4 * width;
    if (!scores) {
        a->part.failed = 1;
        return 0;
    }
    /* Whole rows where there are many, so that what is fetched ahead is for this thread. */
    const long some = rows >= 4 * omp_get_num_threads() ? a->kv_heads : 1;
    for (long from, to; take(&a->part, all, some, &from, &to); done(&a->part, from, to))
        for (long task = from; task < to; task++)
            for (long h = 0, heads; h < a->group; h += heads) {
                const long row = task / a->kv_heads, head = task % a->kv_heads * a->group + h;
                heads = a->group - h >= 4 ? 4 : a->group - h >= 2 ? 2 : 1;
                attend_some(a, row, head, heads, scores, width, query);
            }
    free(scores);
    return all;
}
