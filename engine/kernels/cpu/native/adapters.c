/* What adapters add to the product of a linear layer, or of several of one input: to each row by the adapter that it
 * goes through, (x * down) * up. Sums are kept in float32 between the two.
 */
#include "common.h"

#define TOGETHER 4 /* rows of one adapter that a value of its matrices is read for once, */
#define AMONG 64   /* of so many rows side by side */
#define MOST 1024  /* ranks of all layers of a product, side by side */

struct adapt {
    struct part part;
    void *out;           /* [rows, columns], which is added to */
    const void *x;       /* [rows, depth], rows x_stride apart */
    const void *down;    /* [adapters, depth, lanes]: of each layer `rank` of them, side by side, then zeros */
    const void *up;      /* [adapters, rank, columns] */
    const int64_t *ids;  /* [rows]: 0 for no adapter, or 1 + which */
    const int64_t *ends; /* [layers]: behind the columns of each */
    long columns, depth, x_stride, rank, lanes, layers;
};

/* The low values of some rows of one adapter, so many vectors of them from `lane` on. Of one row what is summed up goes
 * to four sums in turn, which do not wait for each other. */
ALWAYS void narrow_rows(float low[TOGETHER][MOST], const char *const x[TOGETHER], const char *down, long depth,
                        long lanes, long lane, const int rows, const int wide, const int half) {
    enum { TURNS = 4 };
    const int turns = rows * wide < 4 ? TURNS : 1;
    vec sums[TOGETHER][2][TURNS];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < wide; i++)
            for (int t = 0; t < turns; t++) sums[r][i][t] = (vec){0};
    long d = 0;
    for (; d + turns <= depth; d += turns)
        for (int t = 0; t < turns; t++) {
            vec weights[2];
            for (int i = 0; i < wide; i++) weights[i] = get_lanes(down, (d + t) * lanes + lane + i * LANES, half);
            for (int r = 0; r < rows; r++) {
                const vec value = every(get(x[r], d + t, half));
                for (int i = 0; i < wide; i++) sums[r][i][t] = times_plus(value, weights[i], sums[r][i][t]);
            }
        }
    for (; d < depth; d++)
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < wide; i++)
                sums[r][i][0] = times_plus(every(get(x[r], d, half)),
                                           get_lanes(down, d * lanes + lane + i * LANES, half), sums[r][i][0]);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < wide; i++) {
            vec sum = sums[r][i][0];
            for (int t = 1; t < turns; t++) sum += sums[r][i][t];
            *(vec *)(low[r] + lane + i * LANES) = sum;
        }
}

/* Of so many `rows` of one adapter, those at `at`. */
ALWAYS void adapt_rows(const struct adapt *p, const long at[TOGETHER], const int rows, const int half) {
    float low[TOGETHER][MOST] __attribute__((aligned(64)));
    const long depth = p->depth, lanes = p->lanes, adapter = p->ids[at[0]] - 1, columns = p->columns, rank = p->rank;
    const long layers = p->layers, *ends = p->ends;
    const char *down = part(p->down, adapter * depth * lanes, half), *up = part(p->up, adapter * rank * columns, half);
    const char *x[TOGETHER];
    char *out[TOGETHER];
    for (int r = 0; r < rows; r++) x[r] = part(p->x, at[r] * p->x_stride, half), out[r] = part(p->out, at[r] * columns, half);
    long lane = 0;
    for (; lane + 2 * LANES <= lanes; lane += 2 * LANES) narrow_rows(low, x, down, depth, lanes, lane, rows, 2, half);
    if (lane < lanes) narrow_rows(low, x, down, depth, lanes, lane, rows, 1, half);
    for (long layer = 0, column = 0; layer < layers; layer++)
        for (const long end = ends[layer]; column < end; column = column + LANES < end ? column + LANES : end) {
            const long left = end - column;
            vec sums[TOGETHER];
            for (int r = 0; r < rows; r++) sums[r] = get_some(out[r], column, left, half);
            for (long k = 0; k < rank; k++) {
                const vec weights = get_some(up, k * columns + column, left, half);
                for (int r = 0; r < rows; r++) sums[r] = times_plus(every(low[r][layer * rank + k]), weights, sums[r]);
            }
            for (int r = 0; r < rows; r++) put_some(out[r], column, sums[r], left, half);
        }
}

/* Rows `from` to `to`, at most AMONG: those of one adapter together, wherever they lie. */
ALWAYS void adapt_all(const struct adapt *p, long from, long to, const int half) {
    uint64_t left = 0;
    for (long row = from; row < to; row++) left |= (uint64_t)(p->ids[row] != 0) << (row - from);
    while (left) {
        const int64_t id = p->ids[from + __builtin_ctzll(left)];
        long at[TOGETHER], rows = 0;
        for (uint64_t others = left; others && rows < TOGETHER; others &= others - 1) {
            const int place = __builtin_ctzll(others);
            if (p->ids[from + place] != id) continue;
            at[rows++] = from + place;
            left &= ~((uint64_t)1 << place);
        }
        switch (rows) {
        case 1: adapt_rows(p, at, 1, half); break;
        case 2: adapt_rows(p, at, 2, half); break;
        case 3: adapt_rows(p, at, 3, half); break;
        default: adapt_rows(p, at, TOGETHER, half);
        }
    }
}

long adapt(void *of) {
    struct adapt *p = of;
    const long rows = p->part.rows, each = (rows + omp_get_num_threads() - 1) / omp_get_num_threads();
    const long some = each < 1 ? 1 : each < AMONG ? each : AMONG;
    for (long from, to; take(&p->part, rows, some, &from, &to); done(&p->part, from, to))
        if (p->part.half) adapt_all(p, from, to, 1); else adapt_all(p, from, to, 0);
    return rows;
}
