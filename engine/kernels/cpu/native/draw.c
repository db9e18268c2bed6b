/* Tokens drawn from all that may come. */
#include "allowed.h"

#define BLOCKS 256 /* at most, of a row: the sums up to each are kept */

typedef float half_vec __attribute__((vector_size(2 * LANES)));
typedef double doubles __attribute__((vector_size(4 * LANES)));

struct draw {
    struct part part;
    int64_t *tokens;
    const void *logits; /* [rows, vocabulary] */
    const float *temperatures, *floors;
    const double *noises; /* in (0, 1) */
    const int64_t *places; /* of each row among the bits; -1: it has none */
    const uint32_t *bits;
    long vocabulary, words; /* words from one row's bits to the next's */
};

/* What LANES logits weigh beside the highest; nothing where that is less than the floor, or too little for a float. */
ALWAYS vec weights(vec x, words may, float high, float temperature, float floor) {
    const vec power = (x - high) / temperature, weight = exponentials(power);
    return (vec)((words)weight & may & ~(words)(weight < floor) & ~(words)(power < -87.0f));
}
/* Each half of a vector is as many doubles as fill a register. */
ALWAYS void add_halves(doubles lanes[2], vec some) {
    half_vec halves[2];
    memcpy(halves, &some, sizeof some);
    for (int half = 0; half < 2; half++) lanes[half] += __builtin_convertvector(halves[half], doubles);
}
/* As many as are left, in a row's last vector. */
ALWAYS words allowed_some(const uint32_t *bits, long i, long left) {
    words may = {0};
    for (long lane = 0; lane < left; lane++) may[lane] = -(uint32_t)allows(bits, i + lane);
    return may;
}

ALWAYS void draw_rows(const struct draw *d, long from, long to, const int half) {
    const long vocabulary = d->vocabulary;
    const long block = ((vocabulary + BLOCKS - 1) / BLOCKS + LANES - 1) / LANES * LANES;
    for (long r = from; r < to; r++) {
        const void *row = part(d->logits, r * vocabulary, half);
        const uint32_t *bits = d->places[r] < 0 ? NULL : d->bits + d->places[r] * d->words;
        if (bits && !any_bit(bits, vocabulary)) bits = NULL;
        const float temperature = d->temperatures[r], floor = d->floors[r];
        long token;
        const float high = highest_allowed(row, bits, vocabulary, half, &token);
        double sums[BLOCKS], sum = 0;
        long count = 0;
        for (long begin = 0; begin < vocabulary; begin += block) {
            const long end = begin + block < vocabulary ? begin + block : vocabulary;
            doubles lanes[2] = {0};
            long i = begin;
            for (; i + LANES <= end; i += LANES) {
                const vec some = weights(get_lanes(row, i, half), allowed_lanes(bits, i), high, temperature, floor);
                add_halves(lanes, some);
            }
            if (i < end) {
                const words may = allowed_some(bits, i, end - i);
                const vec some = weights(get_some(row, i, end - i, half), may, high, temperature, floor);
                add_halves(lanes, some);
            }
            for (int lane = 0; lane < LANES; lane++) sum += lanes[lane / (LANES / 2)][lane % (LANES / 2)];
            sums[count++] = sum;
        }
        const double mark = d->noises[r] * sum;
        long at = 0;
        while (at < count - 1 && !(sums[at] > mark)) at++;
        double running = at ? sums[at - 1] : 0;
        for (long i = at * block, found = 0; i < vocabulary && i < (at + 1) * block && !found; i += LANES) {
            const long left = vocabulary - i;
            const words may = left < LANES ? allowed_some(bits, i, left) : allowed_lanes(bits, i);
            const vec some = weights(get_some(row, i, left, half), may, high, temperature, floor);
            for (long lane = 0; lane < LANES && !found; lane++) {
                if (!(some[lane] > 0)) continue;
                token = i + lane; /* the last of them, where the block's sum was rounded up */
                running += some[lane];
                found = running > mark;
            }
        }
        d->tokens[r] = token;
    }
}

/* The token, in vocabulary order, at which the running sum of the weights passes the noise's share of their total. */
long draw(void *of) {
    struct draw *d = of;
    for (long from, to; take(&d->part, d->part.rows, some_rows(d->vocabulary), &from, &to); done(&d->part, from, to))
        if (d->part.half) draw_rows(d, from, to, 1); else draw_rows(d, from, to, 0);
    return d->part.rows;
}
