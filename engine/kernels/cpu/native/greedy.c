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
        const long whole = vocabulary / LANES * LANES;
        vec tops = (vec){0} - INFINITY, sums = {0};
        for (long i = 0; i < whole; i += LANES) {
            const vec x = get_lanes(row, i, half);
            tops = chosen((words)(x > tops), x, tops);
        }
        float high = highest(tops);
        for (long i = whole; i < vocabulary; i++) high = get(row, i, half) > high ? get(row, i, half) : high;
        for (long i = 0; i < whole; i += LANES) sums += exponentials(get_lanes(row, i, half) - high);
        float sum = summed(sums);
        for (long i = whole; i < vocabulary; i++) sum += exponential(get(row, i, half) - high);
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
