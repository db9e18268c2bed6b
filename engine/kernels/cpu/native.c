/* What a step on a CPU does beside its matrix products, each in one pass over its data.
 *
 * Values are float32, or bfloat16 (`half`), which is computed in float32 and rounded where torch rounds it. Tensors are
 * contiguous, but where a stride is named (in elements). Rows are shared among `threads` threads of the OpenMP team that
 * torch itself uses: a second team would wait for the first one's threads, which spin for a while after their work.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Of GNU's OpenMP; other runtimes have them too. Called by name, so that any C compiler will do. */
extern void GOMP_parallel(void (*work)(void *), void *of, unsigned threads, unsigned flags);
extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);

#define LANES 16
#define MOST 4 /* queries that are answered together */
#define ALWAYS static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

ALWAYS float as_float(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
ALWAYS uint32_t as_bits(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }

/* bfloat16 is the upper half of a float32; ties are rounded to even. */
ALWAYS uint16_t narrow(float x) {
    uint32_t bits = as_bits(x);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return x != x ? 0x7fc0 : rounded;
}
ALWAYS float widen(uint16_t x) { return as_float((uint32_t)x << 16); }

ALWAYS float get(const void *from, long i, int half) {
    return half ? widen(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}
ALWAYS void put(void *to, long i, float x, int half) {
    if (half) ((uint16_t *)to)[i] = narrow(x); else ((float *)to)[i] = x;
}
/* From its i-th value on. Loops read through such pointers of their own: one that a structure holds is read anew for
 * every value, and the values are then gathered one by one. */
ALWAYS void *part(const void *from, long i, int half) { return (char *)from + i * (half ? 2 : 4); }
ALWAYS float rounded(float x, int half) { return half ? widen(narrow(x)) : x; }
ALWAYS vec get_lanes(const void *from, long i, int half) {
    if (!half) return *(const vec *)((const float *)from + i);
    words bits = __builtin_convertvector(*(const halves *)((const uint16_t *)from + i), words) << 16;
    vec x; memcpy(&x, &bits, sizeof x); return x;
}

ALWAYS void put_lanes(void *to, long i, vec x, int half) {
    if (!half) {
        *(vec *)((float *)to + i) = x;
        return;
    }
    words bits, strange = (words)(x != x);
    memcpy(&bits, &x, sizeof x);
    bits = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    bits = (bits & ~strange) | (strange & 0x7fc0);
    *(halves *)((uint16_t *)to + i) = __builtin_convertvector(bits, halves);
}

/* exp by 2^n * p(f), to 2 units in the last place; NaN stays NaN. */
ALWAYS float exponential(float x) {
    float within = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = (within * 1.44269504f + 12582912.0f) - 12582912.0f;
    float f = within - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1.0f + f * (1.0f + f * (0.5f + f * (0.166666672f + f * (0.0416664891f + f * (0.00833360072f
              + f * 0.00139304355f)))));
    float made = p * as_float((uint32_t)((int32_t)n + 127) << 23);
    return x != x ? x : made;
}

static void share(void (*work)(void *), void *of, int threads) {
    if (threads > 1) GOMP_parallel(work, of, threads, 0); else work(of);
}

/* This thread's share of so many things; the team may be smaller than was asked. */
ALWAYS void my_part(long things, long *from, long *to) {
    const long me = omp_get_thread_num(), team = omp_get_num_threads();
    *from = things * me / team;
    *to = things * (me + 1) / team;
}

struct attention {
    void *out;          /* [rows, kv_heads * group, head_dim] */
    const void *q;      /* as out */
    const void *k;      /* [blocks, kv_heads, head_dim, block] */
    const void *v;      /* [blocks, kv_heads, block, head_dim] */
    const int32_t *tables, *starts, *lengths; /* row r owns tables[starts[r] ...], and sees lengths[r] keys */
    const float *sinks; /* [heads], or NULL */
    long rows, kv_heads, group, head_dim, block, window; /* window 0: none */
    float scale, softcap; /* softcap 0: none */
    int half, threads;
    long next, width; /* the task that no thread has yet; room for a row of scores */
    int failed;
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
    if (a->half) {
        if (heads == 4) attend(a, row, head, 4, 1, scores, width, query);
        else if (heads == 2) attend(a, row, head, 2, 1, scores, width, query);
        else attend(a, row, head, 1, 1, scores, width, query);
    } else {
        if (heads == 4) attend(a, row, head, 4, 0, scores, width, query);
        else if (heads == 2) attend(a, row, head, 2, 0, scores, width, query);
        else attend(a, row, head, 1, 0, scores, width, query);
    }
}

static void attention_of_thread(void *of) {
    struct attention *a = of;
    float *scores = malloc((4 * a->width + 4 * a->head_dim) * sizeof(float)), *query = scores + 4 * a->width;
    if (!scores) {
        a->failed = 1;
        return;
    }
    /* Whole rows where there are many, so that what is fetched ahead is for this thread. */
    const long all = a->rows * a->kv_heads, some = a->rows >= 4 * a->threads ? a->kv_heads : 1;
    for (long begin; (begin = __atomic_fetch_add(&a->next, some, __ATOMIC_RELAXED)) < all;)
        for (long task = begin; task < begin + some; task++)
            for (long done = 0, heads; done < a->group; done += heads) {
                const long row = task / a->kv_heads, head = task % a->kv_heads * a->group + done;
                heads = a->group - done >= 4 ? 4 : a->group - done >= 2 ? 2 : 1;
                attend_some(a, row, head, heads, scores, a->width, query);
            }
    free(scores);
}

/* One query a row over the paged cache. Gives 0, or 1 where there was no memory for the scores. */
int decode_attention(struct attention *a) {
    long longest = 0;
    for (long r = 0; r < a->rows; r++) longest = a->lengths[r] > longest ? a->lengths[r] : longest;
    a->width = (longest / a->block + 2) * a->block;
    a->next = a->failed = 0;
    share(attention_of_thread, a, a->threads);
    return a->failed;
}

struct store {
    void *k_cache, *v_cache;  /* [blocks, kv_heads, head_dim, block] and [blocks, kv_heads, block, head_dim] */
    const void *k, *v;        /* [tokens, kv_heads, head_dim], tokens k_stride and v_stride apart */
    const int32_t *blocks, *offsets; /* [tokens] */
    long tokens, kv_heads, head_dim, block, k_stride, v_stride;
    int half;
};

ALWAYS void store(const struct store *s, const int half) {
    const long dim = s->head_dim, block = s->block, bytes = half ? 2 : 4;
    for (long t = 0; t < s->tokens; t++)
        for (long h = 0; h < s->kv_heads; h++) {
            const long at = (s->blocks[t] * s->kv_heads + h) * dim * block, offset = s->offsets[t];
            const char *k = (const char *)s->k + (t * s->k_stride + h * dim) * bytes;
            const char *v = (const char *)s->v + (t * s->v_stride + h * dim) * bytes;
            if (half) for (long d = 0; d < dim; d++) ((uint16_t *)s->k_cache)[at + d * block + offset] = ((uint16_t *)k)[d];
            else for (long d = 0; d < dim; d++) ((float *)s->k_cache)[at + d * block + offset] = ((float *)k)[d];
            memcpy((char *)s->v_cache + (at + offset * dim) * bytes, v, dim * bytes);
        }
}

/* Puts tokens' K and V into the paged cache. */
void store_kv(const struct store *s) {
    if (s->half) store(s, 1); else store(s, 0);
}

struct norm {
    void *out;
    const void *x, *weight; /* [rows, width]; [width] or NULL */
    long rows, width;
    float eps;
    int rounding, half, threads; /* `Rounding` */
};

ALWAYS void norm_rows(const struct norm *n, const int half, const int rounding) {
    const long width = n->width;
    const void *weight = n->weight;
    long from, to;
    my_part(n->rows, &from, &to);
    for (long r = from; r < to; r++) {
        const void *row = part(n->x, r * width, half);
        void *out = part(n->out, r * width, half);
        float squares = 0;
#pragma omp simd reduction(+ : squares)
        for (long i = 0; i < width; i++) {
            float x = get(row, i, half);
            squares += x * x;
        }
        const float by = 1.0f / sqrtf(squares / width + n->eps);
#pragma omp simd
        for (long i = 0; i < width; i++) {
            float x = get(row, i, half) * by;
            if (rounding == 1) x = rounded(x, half) * get(weight, i, half);
            if (rounding == 2) x = x * get(weight, i, half);
            if (rounding == 3) x = x * (1.0f + get(weight, i, half));
            put(out, i, x, half);
        }
    }
}

ALWAYS void norm_as(const struct norm *n, const int half) {
    if (n->rounding == 0) norm_rows(n, half, 0);
    else if (n->rounding == 1) norm_rows(n, half, 1);
    else if (n->rounding == 2) norm_rows(n, half, 2);
    else norm_rows(n, half, 3);
}

static void norm_of_thread(void *of) {
    const struct norm *n = of;
    if (n->half) norm_as(n, 1); else norm_as(n, 0);
}

/* Root mean square norm of each row. */
void rms_norm(struct norm *n) { share(norm_of_thread, n, n->threads); }

struct gate {
    void *out;             /* [rows, columns] */
    const void *gate, *up; /* as out, rows gate_stride and up_stride apart */
    long rows, columns, gate_stride, up_stride;
    int tanh, half, threads; /* gelu by its tanh, or silu */
};

ALWAYS void gate_rows(const struct gate *g, const int half, const int by_tanh) {
    long from, to;
    my_part(g->rows * g->columns, &from, &to);
    for (long i = from; i < to;) {
        const long r = i / g->columns, c = i % g->columns, left = to - i;
        const long count = g->columns - c < left ? g->columns - c : left;
        const void *gate = part(g->gate, r * g->gate_stride + c, half), *up = part(g->up, r * g->up_stride + c, half);
        void *out = part(g->out, i, half);
#pragma omp simd
        for (long j = 0; j < count; j++) {
            float x = get(gate, j, half);
            /* gelu by tanh is x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 x^3)) */
            float z = by_tanh ? 1.59576912f * (x + 0.044715f * x * x * x) : x;
            float acted = x / (1.0f + exponential(-z));
            put(out, j, rounded(acted, half) * get(up, j, half), half);
        }
        i += count;
    }
}

static void gate_of_thread(void *of) {
    const struct gate *g = of;
    if (g->half && g->tanh) gate_rows(g, 1, 1);
    else if (g->half) gate_rows(g, 1, 0);
    else if (g->tanh) gate_rows(g, 0, 1);
    else gate_rows(g, 0, 0);
}

/* act(gate) * up. */
void act_mul(struct gate *g) { share(gate_of_thread, g, g->threads); }

struct rotation {
    void *out;            /* [batch, tokens, heads, head_dim] */
    const void *x;        /* [batch, heads, tokens, head_dim] by its strides */
    const void *cos, *sin; /* [batch or 1, tokens, head_dim or half of it] by its strides */
    long batch, heads, tokens, head_dim, x_batch, x_head, x_token, table_batch, table_token;
    int second, table_half, half, threads; /* where in a table the second half of a head begins */
};

ALWAYS void rotate_rows(const struct rotation *r, const int half, const int table_half) {
    const long pairs = r->head_dim / 2;
    long from, to;
    my_part(r->batch * r->tokens, &from, &to);
    for (long row = from; row < to; row++) {
        const long batch = row / r->tokens, token = row % r->tokens;
        const long table = batch * r->table_batch + token * r->table_token, other = table + r->second;
        const void *cos = part(r->cos, table, table_half), *cos_b = part(r->cos, other, table_half);
        const void *sin = part(r->sin, table, table_half), *sin_b = part(r->sin, other, table_half);
        for (long h = 0; h < r->heads; h++) {
            const void *x = part(r->x, batch * r->x_batch + h * r->x_head + token * r->x_token, half);
            const void *second = part(x, pairs, half);
            void *out = part(r->out, (row * r->heads + h) * r->head_dim, half), *out_b = part(out, pairs, half);
#pragma omp simd
            for (long i = 0; i < pairs; i++) {
                float a = get(x, i, half), b = get(second, i, half);
                float turned = rounded(a * get(cos, i, table_half), half) - rounded(b * get(sin, i, table_half), half);
                float other_turned =
                    rounded(b * get(cos_b, i, table_half), half) + rounded(a * get(sin_b, i, table_half), half);
                put(out, i, turned, half);
                put(out_b, i, other_turned, half);
            }
        }
    }
}

static void rotation_of_thread(void *of) {
    const struct rotation *r = of;
    if (!r->half) rotate_rows(r, 0, 0);
    else if (r->table_half) rotate_rows(r, 1, 1);
    else rotate_rows(r, 1, 0);
}

/* Turns the pairs (i, i + head_dim / 2) of each head by the angles of its token. */
void rotate(struct rotation *r) { share(rotation_of_thread, r, r->threads); }

struct greedy {
    int64_t *tokens;
    float *logprobs;
    const void *logits; /* [rows, vocabulary] */
    long rows, vocabulary;
    int half, threads;
};

ALWAYS void greedy_rows(const struct greedy *g, const int half) {
    long from, to;
    my_part(g->rows, &from, &to);
    const long vocabulary = g->vocabulary;
    for (long r = from; r < to; r++) {
        const void *row = part(g->logits, r * vocabulary, half);
        float high = -INFINITY, sum = 0;
#pragma omp simd reduction(max : high)
        for (long i = 0; i < vocabulary; i++) {
            float x = get(row, i, half);
            high = x > high ? x : high;
        }
#pragma omp simd reduction(+ : sum)
        for (long i = 0; i < vocabulary; i++) sum += exponential(get(row, i, half) - high);
        long token = 0;
        while (token < vocabulary - 1 && get(row, token, half) != high) token++;
        g->tokens[r] = token;
        g->logprobs[r] = get(row, token, half) - high - logf(sum);
    }
}

static void greedy_of_thread(void *of) {
    const struct greedy *g = of;
    if (g->half) greedy_rows(g, 1); else greedy_rows(g, 0);
}

/* The highest logit of each row, the first of equals, and the logarithm of its probability. */
void greedy(struct greedy *g) { share(greedy_of_thread, g, g->threads); }
