/* What grammars do to logits. */
#include "allowed.h"

struct allowed {
    struct part part;
    int64_t *tokens; /* `greedy` has chosen them and their logprobs, a row each */
    float *logprobs;
    int64_t *likeliest; /* of the rows that are held to a grammar: what `greedy` had chosen, */
    float *theirs;
    int32_t *refused; /* and whether it is ruled out */
    const void *logits; /* [rows, vocabulary] */
    const int64_t *rows; /* those that are held to a grammar, and their bits */
    const uint32_t *bits;
    long vocabulary, words, choose; /* words from one row's bits to the next's; whether to choose again */
};

ALWAYS void choose_allowed(const struct allowed *a, long from, long to, const int half) {
    const long vocabulary = a->vocabulary;
    for (long r = from; r < to; r++) {
        const long at = a->rows[r], top = a->likeliest[r] = a->tokens[at];
        const uint32_t *bits = a->bits + r * a->words;
        a->theirs[r] = a->logprobs[at];
        a->refused[r] = !allows(bits, top);
        if (!a->choose || !a->refused[r] || !any_bit(bits, vocabulary)) continue;
        const void *row = part(a->logits, at * vocabulary, half);
        long token;
        highest_allowed(row, bits, vocabulary, half, &token);
        a->tokens[at] = token;
        a->logprobs[at] += get(row, token, half) - get(row, top, half);
    }
}

/* What of the greedy choices is ruled out; where wanted, the highest of those that are not stands in its place, the
 * first of equals. */
long allowed_choice(void *of) {
    struct allowed *a = of;
    for (long from, to; take(&a->part, a->part.rows, some_rows(a->vocabulary), &from, &to); done(&a->part, from, to))
        if (a->part.half) choose_allowed(a, from, to, 1); else choose_allowed(a, from, to, 0);
    return a->part.rows;
}

struct masked {
    struct part part;
    float *out;
    const float *x; /* [rows, vocabulary] */
    const uint32_t *bits;
    long vocabulary, words;
};

/* A copy of the logits with all tokens ruled out that are not allowed. */
long rule_out(void *of) {
    struct masked *m = of;
    const long vocabulary = m->vocabulary, whole = vocabulary / LANES * LANES;
    for (long from, to; take(&m->part, m->part.rows, some_rows(vocabulary), &from, &to); done(&m->part, from, to))
        for (long r = from; r < to; r++) {
            const uint32_t *bits = m->bits + r * m->words;
            const float *x = m->x + r * vocabulary;
            float *out = m->out + r * vocabulary;
            if (!any_bit(bits, vocabulary)) bits = NULL;
            for (long i = 0; i < whole; i += LANES)
                put_lanes(out, i, chosen(allowed_lanes(bits, i), get_lanes(x, i, 0), (vec){0} - INFINITY), 0);
            for (long i = whole; i < vocabulary; i++) out[i] = allows(bits, i) ? x[i] : -INFINITY;
        }
    return m->part.rows;
}
