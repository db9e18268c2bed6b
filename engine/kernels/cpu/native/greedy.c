/* The greedy choice of tokens. */
#include "common.h"

struct greedy {
    struct part part;
    int64_t *tokens;
    float *logprobs;
    const void *logits; /* [rows, vocabulary] */
    long vocabulary;
};

ALWAYS void greedy_rows(const struct greedy *g, long from, long to, const int half) {
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

/* The highest logit of each row, the first of equals, and the logarithm of its probability. */
long greedy(void *of) {
    struct greedy *g = of;
    for (long from, to; take(&g->part, g->part.rows, some_rows(g->vocabulary), &from, &to); done(&g->part, from, to))
        if (g->part.half) greedy_rows(g, from, to, 1); else greedy_rows(g, from, to, 0);
    return g->part.rows;
}
