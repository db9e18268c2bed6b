/* Products of few rows with a weight that was laid out for them: [panels][depth][PANEL] of float32, or, of bfloat16,
 * [panels][depth / 2][PANEL][2]. A tile of the result, some rows by a panel's columns, stays in registers while the
 * panel passes by once.
 *
 * What a step does next to every value of a result can be done to the tile, instead of writing it and reading it again:
 * the sum with a residual, or act(gate) * up where gates and ups are the weight's two halves.
 */
#include "common.h"

#ifdef __AVX512F__
#define WIDE 4 /* vectors of a panel: with ROWS times as many sums they fill the registers */
#else
#define WIDE 1
#endif
#define ROWS 6
#define PANEL (WIDE * LANES)
#define TILES 16          /* of one thing to do: a panel is read from memory for so many */
#define DEEP (512 * 1024) /* bytes of a panel that stay near a core while the tiles read them */

enum { PLAIN, SUMMED, GATED }; /* what becomes of a product */
enum { SILU = 1, GELU };

struct product {
    struct part part;
    void *out;            /* [rows, columns], or, gated, half of these */
    const void *x;        /* [rows, depth], rows x_stride apart */
    const void *weight;   /* as above */
    const float *bias;    /* [columns], or NULL */
    const void *residual; /* as out, rows residual_stride apart; or NULL */
    long columns, depth, x_stride, residual_stride;
    int gate;             /* how it is activated; 0: it is none. Half of the columns are then whole panels */
};

long panel_width(void) { return PANEL; }

/* Adds to `sums` what `pairs` (of bfloat16) or so many values of x give, for `rows` rows of x. */
ALWAYS void multiply(vec sums[ROWS][WIDE], const char *weight, const char *x, long count, long stride, const int rows,
                     const int half) {
    for (long k = 0; k < count; k++) {
        words w[WIDE];
        for (int i = 0; i < WIDE; i++) w[i] = *((const words *)weight + k * WIDE + i);
        for (int r = 0; r < rows; r++) {
            uint32_t bits;
            memcpy(&bits, x + r * stride + 4 * k, 4);
            for (int i = 0; i < WIDE; i++) {
#ifdef __AVX512BF16__
                if (half) {
                    sums[r][i] = (vec)_mm512_dpbf16_ps((__m512)sums[r][i], (__m512bh)_mm512_set1_epi32(bits), (__m512bh)w[i]);
                    continue;
                }
#endif
                if (half) {
                    sums[r][i] += as_float(bits << 16) * (vec)(w[i] << 16);
                    sums[r][i] += as_float(bits & 0xffff0000) * (vec)(w[i] & 0xffff0000);
                } else {
                    sums[r][i] += as_float(bits) * (vec)w[i];
                }
            }
        }
    }
}

/* Where a tile's sums go once they are whole. */
ALWAYS void put_tile(const struct product *p, long row, long column, vec sums[ROWS][WIDE], const int rows, const int half,
                     const int becomes) {
    const long columns = p->columns;
    for (int i = 0; i < WIDE; i++) {
        const long at = column + i * LANES;
        if (at + LANES <= columns) {
            const vec bias = p->bias ? *(const vec *)(p->bias + at) : (vec){0};
            for (int r = 0; r < rows; r++) {
                vec x = sums[r][i] + bias;
                if (becomes == SUMMED)
                    x = rounded_lanes(x, half) + get_lanes(p->residual, (row + r) * p->residual_stride + at, half);
                put_lanes(p->out, (row + r) * columns + at, x, half);
            }
        } else {
            for (int r = 0; r < rows; r++)
                for (long c = at; c < columns; c++) {
                    vec x = (vec){0} + (sums[r][i][c - at] + (p->bias ? p->bias[c] : 0.0f));
                    if (becomes == SUMMED)
                        x = rounded_lanes(x, half) + get(p->residual, (row + r) * p->residual_stride + c, half);
                    put(p->out, (row + r) * columns + c, x[0], half);
                }
        }
    }
}

/* Of gates' sums, which stay in `gates`, and those of the ups beside them. */
ALWAYS void put_gated(const struct product *p, long row, long column, vec sums[ROWS][WIDE], const float *gates,
                      const int rows, const int half) {
    const long columns = p->columns / 2;
    for (int i = 0; i < WIDE; i++) {
        const long at = column + i * LANES;
        const vec none = {0}, bias = p->bias ? *(const vec *)(p->bias + at) : none;
        const vec bias_up = p->bias ? *(const vec *)(p->bias + columns + at) : none;
        for (int r = 0; r < rows; r++) {
            const vec x = rounded_lanes(*(const vec *)(gates + r * PANEL + i * LANES) + bias, half);
            const vec acted = rounded_lanes(activated(x, p->gate == GELU), half);
            put_lanes(p->out, (row + r) * columns + at, acted * rounded_lanes(sums[r][i] + bias_up, half), half);
        }
    }
}

/* A tile: the rows from `row` on, of one panel, the depth from `begin` to `end`, which is all of it or a part; between
 * two parts the sums lie in `kept`. */
ALWAYS void tile(const struct product *p, long row, long panel, long begin, long end, float *kept, const int rows,
                 const int half, const int becomes) {
    const long bytes = half ? 2 : 4, column = panel * PANEL;
    float gates[ROWS * PANEL] __attribute__((aligned(64)));
    for (int up = 0; up <= (becomes == GATED); up++) {
        const long at = panel + (up ? p->columns / 2 / PANEL : 0);
        float *before = kept + up * TILES * ROWS * PANEL;
        vec sums[ROWS][WIDE];
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < WIDE; i++) sums[r][i] = begin ? *(vec *)(before + r * PANEL + i * LANES) : (vec){0};
        multiply(sums, (const char *)p->weight + (at * p->depth + begin) * PANEL * bytes,
                 (const char *)p->x + (row * p->x_stride + begin) * bytes, (end - begin) * bytes / 4,
                 p->x_stride * bytes, rows, half);
        const int whole = end == p->depth;
        if (!whole || (becomes == GATED && !up)) {
            float *to = whole ? gates : before;
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < WIDE; i++) *(vec *)(to + r * PANEL + i * LANES) = sums[r][i];
        } else if (becomes == GATED) put_gated(p, row, column, sums, gates, rows, half);
        else put_tile(p, row, column, sums, rows, half, becomes);
    }
}

ALWAYS void tile_of(const struct product *p, long row, long panel, long begin, long end, float *kept, int rows,
                    const int half, const int becomes) {
    switch (rows) {
    case 1: tile(p, row, panel, begin, end, kept, 1, half, becomes); break;
    case 2: tile(p, row, panel, begin, end, kept, 2, half, becomes); break;
    case 3: tile(p, row, panel, begin, end, kept, 3, half, becomes); break;
    case 4: tile(p, row, panel, begin, end, kept, 4, half, becomes); break;
    case 5: tile(p, row, panel, begin, end, kept, 5, half, becomes); break;
    default: tile(p, row, panel, begin, end, kept, 6, half, becomes);
    }
}

ALWAYS void some_tiles(const struct product *p, long panel, long row, long rows, const int half, const int becomes) {
    float kept[2 * TILES * ROWS * PANEL] __attribute__((aligned(64)));
    const long deep = DEEP / (PANEL * (half ? 2 : 4)), tiles = (rows + ROWS - 1) / ROWS;
    for (long begin = 0; begin < p->depth; begin += deep) {
        const long end = begin + deep < p->depth ? begin + deep : p->depth;
        for (long t = 0; t < tiles; t++) {
            const long first = rows * t / tiles, next = rows * (t + 1) / tiles;
            tile_of(p, row + first, panel, begin, end, kept + first * PANEL, next - first, half, becomes);
        }
    }
}

ALWAYS void tiles_of(const struct product *p, long panel, long row, long rows, const int half) {
    if (p->gate) some_tiles(p, panel, row, rows, half, GATED);
    else if (p->residual) some_tiles(p, panel, row, rows, half, SUMMED);
    else some_tiles(p, panel, row, rows, half, PLAIN);
}

/* out = x * weight + bias, and what becomes of it. */
long product(void *of) {
    struct product *p = of;
    const long rows = p->part.rows, panels = ((p->gate ? p->columns / 2 : p->columns) + PANEL - 1) / PANEL, team = omp_get_num_threads();
    const long tiles = (rows + ROWS - 1) / ROWS;
    long groups = (tiles + TILES - 1) / TILES;
    while (groups < tiles && panels * groups < 4 * team) groups++; /* something to do for every thread */
    for (long task, end; take(&p->part, panels * groups, 1, &task, &end); done(&p->part, task, end)) {
        const long panel = task / groups, group = task % groups;
        const long first = tiles * group / groups * ROWS, last = tiles * (group + 1) / groups * ROWS;
        const long count = (last < rows ? last : rows) - first;
        if (p->part.half) tiles_of(p, panel, first, count, 1); else tiles_of(p, panel, first, count, 0);
    }
    return panels * groups;
}
