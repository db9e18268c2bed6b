/* The products that `product.h` tells of. */
#include "product.h"

#define FEW (REGISTERS > 16 ? ROWS : 4) /* rows that are multiplied with codes without a copy of the numbers */
#define PIECE 256         /* pairs of bfloat16 that are widened at once for one tile; */
#define WIDE_DEPTH (PANEL > 32 ? 64 : 128) /* for more of them so much of the depth is, */
#define PANELS (MULTIPLIES_HALVES ? 1 : 8) /* of so many panels: what is multiplied as it is read gains by no more */
#define DEEP (512 * 1024) /* bytes of a panel that stay near a core while the tiles read them */

long panel_width(void) { return PANEL; }

/* The sums of some rows of x with one vector of a weight, pairs of bfloat16 or float32. */
ALWAYS vec plus(vec sum, uint32_t x, words weight, const int half) {
#ifdef __AVX512BF16__
    if (half) return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(x), (__m512bh)weight);
#endif
    return times_plus(every(as_float(x)), (vec)weight, sum);
}

/* Adds to `sums` what `count` pairs of bfloat16, or values of float32, give for `rows` rows of x. */
ALWAYS void multiply(vec sums[ROWS][WIDE], const char *weight, const char *x, long count, long stride, const int rows,
                     const int half) {
    for (long k = 0; k < count; k++) {
        words w[WIDE];
        for (int i = 0; i < WIDE; i++) w[i] = *((const words *)weight + k * WIDE + i);
        for (int r = 0; r < rows; r++) {
            uint32_t bits;
            memcpy(&bits, x + r * stride + 4 * k, 4);
            for (int i = 0; i < WIDE; i++) sums[r][i] = plus(sums[r][i], bits, w[i], half);
        }
    }
}

/* The same with codes that are made numbers on the way, which is quicker for few rows. */
ALWAYS void multiply_codes(vec sums[ROWS][WIDE], const struct piece *piece, const char *x, long stride, const int rows,
                           const int coding, const int half) {
    const int each = codes_of_a_word(coding) >> half;
    const uint32_t *weight = piece->weight;
    for (long b = 0; b < piece->count; b++, weight += PANEL, x += 4 * each) {
        words some[WIDE];
        for (int i = 0; i < WIDE; i++) some[i] = *(const words *)(weight + i * LANES);
        for (int k = 0; k < each; k++) {
            words w[WIDE];
            for (int i = 0; i < WIDE; i++) w[i] = number(piece, some[i], i, k, coding, half);
            for (int r = 0; r < rows; r++) {
                uint32_t bits;
                memcpy(&bits, x + r * stride + 4 * k, 4);
                for (int i = 0; i < WIDE; i++) sums[r][i] = plus(sums[r][i], bits, w[i], half);
            }
        }
    }
}

/* Of bfloat16 that the processor does not multiply: of both as float32, those of x widened beforehand, a piece of the
 * depth that stays nearest to the core at a time. Each is read by itself, for all of the panel. */
ALWAYS void multiply_widened(vec sums[ROWS][WIDE], const char *weight, const char *x, long count, long stride,
                             const int rows) {
    float wide[ROWS][2 * PIECE];
    for (long begin = 0; begin < count; begin += PIECE) {
        const long some = count - begin < PIECE ? count - begin : PIECE;
        for (int r = 0; r < rows; r++)
            for (long i = 0; i < 2 * some; i++) wide[r][i] = widen(((const uint16_t *)(x + r * stride))[2 * begin + i]);
        for (long k = 0; k < some; k++) {
            const words *pairs = (const words *)weight + (begin + k) * WIDE;
            words w[WIDE];
            for (int i = 0; i < WIDE; i++) w[i] = pairs[i] << 16;
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < WIDE; i++) sums[r][i] = times_plus(every(wide[r][2 * k]), (vec)w[i], sums[r][i]);
            for (int i = 0; i < WIDE; i++) w[i] = pairs[i] & 0xffff0000;
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < WIDE; i++) sums[r][i] = times_plus(every(wide[r][2 * k + 1]), (vec)w[i], sums[r][i]);
        }
    }
}

/* A piece of a panel of bfloat16 as float32, for the tiles that read it one after another: `[2 * count][PANEL]`. */
ALWAYS void widen_panel(float *to, const char *weight, long count) {
    for (long k = 0; k < count * WIDE; k++) {
        const words pair = *((const words *)weight + k);
        vec *at = (vec *)(to + k / WIDE * 2 * PANEL + k % WIDE * LANES);
        at[0] = (vec)(pair << 16);
        at[WIDE] = (vec)(pair & 0xffff0000);
    }
}

/* With such a piece, and one of x `[rows][WIDE_DEPTH]`, in the same order. */
ALWAYS void multiply_wide(vec sums[ROWS][WIDE], const float *weight, const float *x, long values, const int rows) {
    for (long k = 0; k < values; k++)
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < WIDE; i++)
                sums[r][i] = times_plus(every(x[r * WIDE_DEPTH + k]), *(const vec *)(weight + k * PANEL + i * LANES), sums[r][i]);
}

/* Parts of both as float32: of the panel, of that of the ups, and of the rows of x. Where the processor multiplies
 * bfloat16, codes become that instead, and x, like that of float32, is read where it is. */
struct wide {
    int decoded;         /* the weight is; else it is codes, and few rows read them */
    float scales[2][PANEL] __attribute__((aligned(64))); /* of codes' sums */
    float weight[2][WIDE_DEPTH * PANEL] __attribute__((aligned(64)));
    float x[TILES * ROWS][WIDE_DEPTH] __attribute__((aligned(64)));
};

/* Where a tile's sums `[rows][PANEL]` go once they are whole; of gates' beside them those of the ups. */
ALWAYS void put_tile(const struct product *p, long row, long column, const float *sums, const float *gates, long rows,
                     const int half) {
    const long columns = gates ? p->columns / 2 : p->columns;
    for (long at = column; at < column + PANEL && at < columns; at += LANES, sums += LANES) {
        const long left = columns - at;
        const vec none = {0}, bias = p->bias ? get_some(p->bias, at, left, half) : none;
        if (gates) { /* half of the columns are whole panels */
            const vec bias_up = p->bias ? get_some(p->bias, columns + at, left, half) : none;
            for (long r = 0; r < rows; r++) {
                const vec by = every(p->by ? p->by[row + r] : 1);
                const vec x = rounded_lanes(*(const vec *)(gates + r * PANEL + (at - column)) * by + bias, half);
                const int bounds = p->gate == CLAMPED;
                const vec acted = rounded_lanes(bounds ? activated_bounded(x) : activated(x, p->gate == GELU), half);
                vec up = rounded_lanes(*(const vec *)(sums + r * PANEL) * by + bias_up, half);
                if (bounds) up = bounded(up, -BOUND, BOUND) + 1.0f;
                put_lanes(p->out, (row + r) * p->out_stride + at, acted * up, half);
            }
            continue;
        }
        for (long r = 0; r < rows; r++) {
            vec x = *(const vec *)(sums + r * PANEL) * (p->by ? p->by[row + r] : 1) + bias;
            if (p->residual)
                x = rounded_lanes(x, half) + get_some(p->residual, (row + r) * p->residual_stride + at, left, half);
            put_some(p->out, (row + r) * p->out_stride + at, x, left, half);
        }
    }
}

__attribute__((noinline)) static void finish(const struct product *p, long row, long column, const float *sums,
                                             const float *gates, long rows) {
    if (p->part.half) put_tile(p, row, column, sums, gates, rows, 1);
    else put_tile(p, row, column, sums, gates, rows, 0);
}

/* What is done with a part of the weight that is codes, compiled for each coding. */
#define AS(as, what) { enum { coding = as }; const struct piece piece = piece_of(p->weight, &p->scales, panel, p->depth, begin, end, coding, half); what; break; }
#define WITH_PIECE(what) switch (p->coding) { case STEPS: AS(STEPS, what) case BYTES: AS(BYTES, what) default: AS(ENTRIES, what) }

ALWAYS void multiply_piece(vec sums[ROWS][WIDE], const struct product *p, long panel, long begin, long end, const char *x,
                           long stride, const int rows, const int half) {
    WITH_PIECE(multiply_codes(sums, &piece, x, stride, rows, coding, half))
}

ALWAYS void decode_piece(float *to, const struct product *p, long panel, long begin, long end, const int half) {
    WITH_PIECE(decode((uint32_t *)to, &piece, coding, half))
}

/* A tile: the rows from `row` on, of one panel, the depth from `begin` to `end`, which is all of it or a part; between
 * two parts the sums lie in `kept`. `wide`: this part of both as float32, x from the row `first` on; or NULL. */
ALWAYS void tile(const struct product *p, long row, long panel, long begin, long end, float *kept, long first,
                 const struct wide *wide, const int rows, const int half) {
    const int in_place = !half || MULTIPLIES_HALVES, coded = wide && p->coding; /* x is read where it is */
    const long bytes = half ? 2 : 4, count = (end - begin) * bytes / 4, depth = p->depth;
    const char *x = (const char *)p->x + (row * p->x_stride + begin) * bytes;
    long stride = p->x_stride * bytes;
    if (wide && !in_place) x = (const char *)wide->x[row - first], stride = WIDE_DEPTH * 4;
    float whole[2][ROWS * PANEL] __attribute__((aligned(64)));
    for (int up = 0; up <= !!p->gate; up++) {
        const long at = panel + (up ? p->columns / 2 / PANEL : 0);
        float *before = kept + up * TILES * ROWS * PANEL, *to = end == depth ? whole[up] : before;
        vec sums[ROWS][WIDE];
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < WIDE; i++) sums[r][i] = begin && !coded ? *(vec *)(before + r * PANEL + i * LANES) : (vec){0};
        const char *weight = (const char *)p->weight + (at * depth + begin) * PANEL * bytes;
        if (coded && !wide->decoded && rows <= FEW) multiply_piece(sums, p, at, begin, end, x, stride, rows, half && in_place);
        else if (wide && !in_place) multiply_wide(sums, wide->weight[up], (const float *)x, end - begin, rows);
        else if (!in_place) multiply_widened(sums, weight, x, count, stride, rows);
        else multiply(sums, wide ? (const char *)wide->weight[up] : weight, x, count, stride, rows, half);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < WIDE; i++) {
                vec sum = sums[r][i], sofar = {0};
                if (coded && begin) sofar = *(vec *)(before + r * PANEL + i * LANES);
                if (coded) sum = times_plus(sum, *(const vec *)(wide->scales[up] + i * LANES), sofar);
                *(vec *)(to + r * PANEL + i * LANES) = sum;
            }
    }
    if (end == depth) finish(p, row, panel * PANEL, whole[!!p->gate], p->gate ? whole[0] : NULL, rows);
}

/* The tiles of some rows. */
ALWAYS void tiles_of(const struct product *p, long panel, long row, long rows, long begin, long end, float *sums,
                     const struct wide *wide, const int half) {
    const long tiles = (rows + ROWS - 1) / ROWS;
    for (long t = 0; t < tiles; t++) {
        const long at = rows * t / tiles;
        float *kept = sums + at * PANEL;
        switch (rows * (t + 1) / tiles - at) {
        case 1: tile(p, row + at, panel, begin, end, kept, row, wide, 1, half); break;
        case 2: tile(p, row + at, panel, begin, end, kept, row, wide, 2, half); break;
        case 3: tile(p, row + at, panel, begin, end, kept, row, wide, 3, half); break;
        case 4: tile(p, row + at, panel, begin, end, kept, row, wide, 4, half); break;
        case 5: tile(p, row + at, panel, begin, end, kept, row, wide, 5, half); break;
        default: tile(p, row + at, panel, begin, end, kept, row, wide, 6, half);
        }
    }
}

ALWAYS void some_tiles(const struct product *p, long panel, long row, long rows, const int half) {
    float kept[2 * TILES * ROWS * PANEL] __attribute__((aligned(64)));
    const long deep = DEEP / (PANEL * (half ? 2 : 4));
    for (long begin = 0; begin < p->depth; begin += deep) {
        const long end = begin + deep < p->depth ? begin + deep : p->depth;
        tiles_of(p, panel, row, rows, begin, end, kept, NULL, half);
    }
}

/* Of codes, and of bfloat16 that the processor does not multiply: each part of the panels is decoded or widened once
 * for all these rows, and each part of the rows once for all these panels. */
ALWAYS void some_wide_tiles(const struct product *p, long panel, long panels, long row, long rows, const int half) {
    float kept[PANELS][2 * TILES * ROWS * PANEL] __attribute__((aligned(64)));
    struct wide wide;
    wide.decoded = rows > FEW;
    const long deep = half && MULTIPLIES_HALVES ? 2 * WIDE_DEPTH : WIDE_DEPTH; /* there is room for twice as many halves */
    for (long begin = 0, end; begin < p->depth; begin = end) {
        end = begin + deep < p->depth ? begin + deep : p->depth;
        if (p->coding && end > (begin / p->scales.group + 1) * p->scales.group) end = (begin / p->scales.group + 1) * p->scales.group;
        for (long r = 0; r < rows && half && !MULTIPLIES_HALVES; r++) {
            const uint16_t *x = (const uint16_t *)p->x + (row + r) * p->x_stride + begin;
            for (long i = 0; i < end - begin; i++) wide.x[r][i] = widen(x[i]);
        }
        for (long i = 0; i < panels; i++) {
            for (int up = 0; up <= !!p->gate; up++) {
                const long at = panel + i + (up ? p->columns / 2 / PANEL : 0);
                if (p->coding) {
                    scales_of(wide.scales[up], &p->scales, p->coding, at, p->depth, begin / p->scales.group);
                    if (wide.decoded) decode_piece(wide.weight[up], p, at, begin, end, half && MULTIPLIES_HALVES);
                } else widen_panel(wide.weight[up], (const char *)p->weight + (at * p->depth + begin) * PANEL * 2, (end - begin) / 2);
            }
            tiles_of(p, panel + i, row, rows, begin, end, kept[i], &wide, half);
        }
    }
}

/* Whether parts of a weight and of the rows become float32, or codes bfloat16, before they are multiplied. */
static int is_wide(const struct product *p) {
    return p->coding || (p->part.half && !MULTIPLIES_HALVES && p->part.rows > 2 * ROWS);
}

struct cut cut_of(const struct product *p, long wanted) {
    const long panels = ((p->gate ? p->columns / 2 : p->columns) + PANEL - 1) / PANEL, tiles = (p->part.rows + ROWS - 1) / ROWS;
    struct cut cut = {.together = p->part.half && is_wide(p) ? PANELS : 1};
    while (tiles <= 2 && cut.together > 1 && panels < wanted * cut.together) cut.together /= 2;
    cut.parts = (panels + cut.together - 1) / cut.together;
    cut.groups = (tiles + TILES - 1) / TILES;
    while (cut.groups < tiles && cut.parts * cut.groups < wanted) cut.groups++;
    return cut;
}

void multiply_task(const struct product *p, struct cut cut, long task) {
    const long rows = p->part.rows, panels = ((p->gate ? p->columns / 2 : p->columns) + PANEL - 1) / PANEL, tiles = (rows + ROWS - 1) / ROWS;
    const long panel = task / cut.groups * cut.together, group = task % cut.groups;
    const long first = tiles * group / cut.groups * ROWS, last = tiles * (group + 1) / cut.groups * ROWS;
    const long count = (last < rows ? last : rows) - first;
    const long these = panels - panel < cut.together ? panels - panel : cut.together;
    if (is_wide(p) && p->part.half) some_wide_tiles(p, panel, these, first, count, 1);
    else if (is_wide(p)) some_wide_tiles(p, panel, these, first, count, 0);
    else if (p->part.half) some_tiles(p, panel, first, count, 1);
    else some_tiles(p, panel, first, count, 0);
}

/* out = x * weight + bias, and what becomes of it. */
long product(void *of) {
    struct product *p = of;
    const struct cut cut = cut_of(p, 4 * omp_get_num_threads());
    const long tasks = cut.parts * cut.groups;
    for (long task, end; take(&p->part, tasks, 1, &task, &end); done(&p->part, task, end)) multiply_task(p, cut, task);
    return tasks;
}
