/* What adapters add to the product of a linear layer, or of several of one input: to each row by the adapter that it
 * goes through, (x * down) * up. Sums are kept in float32 between the two.
 */
#include "common.h"

#define TOGETHER 4 /* rows of one adapter that a value of its matrices is read for once */
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

/* Of rows of one adapter: `rows` of them, from `row` on. */
ALWAYS void adapt_rows(const struct adapt *p, long row, const int rows, const int half) {
    float low[TOGETHER][MOST] __attribute__((aligned(64)));
    const long depth = p->depth, lanes = p->lanes, adapter = p->ids[row] - 1;
    const void *down = part(p->down, adapter * depth * lanes, half);
    for (long lane = 0; lane < lanes; lane += LANES) {
        vec sums[TOGETHER][2]; /* two of each, which do not wait for each other */
        for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = (vec){0};
        for (long d = 0; d + 1 < depth; d += 2)
            for (int i = 0; i < 2; i++) {
                const vec weights = get_lanes(down, (d + i) * lanes + lane, half);
                for (int r = 0; r < rows; r++)
                    sums[r][i] = times_plus(every(get(p->x, (row + r) * p->x_stride + d + i, half)), weights, sums[r][i]);
            }
        for (int r = 0; r < rows && depth % 2; r++)
            sums[r][0] = times_plus(every(get(p->x, (row + r) * p->x_stride + depth - 1, half)),
                                    get_lanes(down, (depth - 1) * lanes + lane, half), sums[r][0]);
        for (int r = 0; r < rows; r++) *(vec *)(low[r] + lane) = sums[r][0] + sums[r][1];
    }
    for (long layer = 0, begin = 0; layer < p->layers; begin = p->ends[layer++]) {
        for (long at = begin; at < p->ends[layer]; at += LANES) {
            const long left = p->ends[layer] - at;
            vec sums[TOGETHER];
            for (int r = 0; r < rows; r++) sums[r] = get_some(p->out, (row + r) * p->columns + at, left, half);
            for (long k = 0; k < p->rank; k++) {
                const vec weights = get_some(p->up, (adapter * p->rank + k) * p->columns + at, left, half);
                for (int r = 0; r < rows; r++) sums[r] = times_plus(every(low[r][layer * p->rank + k]), weights, sums[r]);
            }
            for (int r = 0; r < rows; r++) put_some(p->out, (row + r) * p->columns + at, sums[r], left, half);
        }
    }
}

ALWAYS void adapt_all(const struct adapt *p, long from, long to, const int half) {
    while (from < to) {
        long rows = 1;
        while (rows < TOGETHER && from + rows < to && p->ids[from + rows] == p->ids[from]) rows++;
        if (p->ids[from]) switch (rows) {
        case 1: adapt_rows(p, from, 1, half); break;
        case 2: adapt_rows(p, from, 2, half); break;
        case 3: adapt_rows(p, from, 3, half); break;
        default: adapt_rows(p, from, TOGETHER, half);
        }
        from += rows;
    }
}

long adapt(void *of) {
    struct adapt *p = of;
    const long rows = p->part.rows, threads = omp_get_num_threads();
    const long some = rows < TOGETHER * threads ? (rows + threads - 1) / threads : TOGETHER;
    for (long from, to; take(&p->part, rows, some, &from, &to); done(&p->part, from, to))
        if (p->part.half) adapt_all(p, from, to, 1); else adapt_all(p, from, to, 0);
    return rows;
}
