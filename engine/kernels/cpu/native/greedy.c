/* The greedy choice of tokens. */
#include "allowed.h"

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
        vec sums = {0};
        long token;
        const float high = highest_allowed(row, NULL, vocabulary, half, &token);
        for (long i = 0; i < whole; i += LANES) sums += exponentials(get_lanes(row, i, half) - high);
        float sum = summed(sums);
        for (long i = whole; i < vocabulary; i++) sum += exponential(get(row, i, half) - high);
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
