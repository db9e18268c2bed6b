/* What is done to each row of activations. */
#include "common.h"

struct norm {
    struct part part;
    void *out;
    const void *x, *weight; /* rows of `width`, `together` of them side by side, and so many x_stride apart; or NULL */
    long width, together, x_stride;
    float eps;
    int rounding; /* `Rounding` */
};

ALWAYS void norm_rows(const struct norm *n, long from, long to, const int half, const int rounding) {
    const long width = n->width;
    const void *weight = n->weight;
    for (long r = from; r < to; r++) {
        const void *row = part(n->x, r / n->together * n->x_stride + r % n->together * width, half);
        void *out = part(n->out, r * width, half);
        vec squares = {0};
        for (long i = 0; i < width; i += LANES) {
            const vec x = get_some(row, i, width - i, half);
            squares += x * x;
        }
        const float by = 1.0f / sqrtf(summed(squares) / width + n->eps);
        for (long i = 0; i < width; i += LANES) {
            vec x = get_some(row, i, width - i, half) * by;
            if (rounding == 1) x = rounded_lanes(x, half) * get_some(weight, i, width - i, half);
            if (rounding == 2) x = x * get_some(weight, i, width - i, half);
            if (rounding == 3) x = x * (1.0f + get_some(weight, i, width - i, half));
            put_some(out, i, x, width - i, half);
        }
    }
}

ALWAYS void norm_as(const struct norm *n, long from, long to, const int half) {
    if (n->rounding == 0) norm_rows(n, from, to, half, 0);
    else if (n->rounding == 1) norm_rows(n, from, to, half, 1);
    else if (n->rounding == 2) norm_rows(n, from, to, half, 2);
    else norm_rows(n, from, to, half, 3);
}

/* Root mean square norm of each row. */
long rms_norm(void *of) {
    struct norm *n = of;
    for (long from, to; take(&n->part, n->part.rows, some_rows(n->width), &from, &to); done(&n->part, from, to))
        if (n->part.half) norm_as(n, from, to, 1); else norm_as(n, from, to, 0);
    return n->part.rows;
}

struct integers {
    struct part part;
    void *out;     /* [rows, width] */
    float *scales; /* [rows] */
    const void *x; /* as out, rows x_stride apart */
    long width, x_stride;
    float outliers; /* what is as large stays as it is, and no scale looks at it; 0: nothing does */
};

ALWAYS void integer_rows(const struct integers *n, long from, long to, const int half) {
    const long width = n->width;
    const vec outliers = every(n->outliers ? n->outliers : INFINITY);
    for (long r = from; r < to; r++) {
        const void *row = part(n->x, r * n->x_stride, half);
        void *out = part(n->out, r * width, half);
        vec most = {0};
        for (long i = 0; i < width; i += LANES) {
            const vec x = get_some(row, i, width - i, half), size = (vec)((words)x & 0x7fffffff);
            most = chosen((words)(size < outliers) & (words)(size > most), size, most);
        }
        const float highest_one = highest(most), scale = highest_one > 1e-20f ? highest_one / 127 : 1; /* or an outlier beside it overflows */
        n->scales[r] = scale;
        for (long i = 0; i < width; i += LANES) {
            const vec x = get_some(row, i, width - i, half), size = (vec)((words)x & 0x7fffffff), y = x * (1 / scale);
            const vec whole = (y + 12582912.0f) - 12582912.0f;
            put_some(out, i, chosen((words)(size < outliers), whole, y), width - i, half);
        }
    }
}

/* Rows as integers up to 127, ties to even, that their scale is times. */
long to_integers(void *of) {
    struct integers *n = of;
    for (long from, to; take(&n->part, n->part.rows, some_rows(n->width), &from, &to); done(&n->part, from, to))
        if (n->part.half) integer_rows(n, from, to, 1); else integer_rows(n, from, to, 0);
    return n->part.rows;
}

struct gate {
    struct part part;
    void *out;             /* [rows, columns] */
    const void *gate, *up; /* as out, rows gate_stride and up_stride apart */
    long columns, gate_stride, up_stride;
    int tanh; /* gelu by its tanh, or silu */
};

ALWAYS void gate_rows(const struct gate *g, long from, long to, const int half, const int by_tanh) {
    for (long r = from; r < to; r++) {
        const void *gate = part(g->gate, r * g->gate_stride, half), *up = part(g->up, r * g->up_stride, half);
        void *out = part(g->out, r * g->columns, half);
        for (long j = 0, left = g->columns; left > 0; j += LANES, left -= LANES) {
            const vec x = get_some(gate, j, left, half);
            const vec acted = activated(x, by_tanh);
            put_some(out, j, rounded_lanes(acted, half) * get_some(up, j, left, half), left, half);
        }
    }
}

/* act(gate) * up. */
long act_mul(void *of) {
    struct gate *g = of;
    for (long from, to; take(&g->part, g->part.rows, some_rows(g->columns), &from, &to); done(&g->part, from, to))
        if (g->part.half && g->tanh) gate_rows(g, from, to, 1, 1);
        else if (g->part.half) gate_rows(g, from, to, 1, 0);
        else if (g->tanh) gate_rows(g, from, to, 0, 1);
        else gate_rows(g, from, to, 0, 0);
    return g->part.rows;
}

struct rotation {
    struct part part;     /* rows: of the whole batch */
    void *out;            /* [batch, tokens, heads, head_dim + rest] */
    const void *x;        /* [batch, heads, tokens, head_dim + rest] by its strides; the rest stays as it is */
    const void *cos, *sin; /* [batch or 1, tokens, head_dim or half of it] by its strides */
    long heads, tokens, head_dim, rest, x_batch, x_head, x_token, table_batch, table_token; /* tokens: of a sequence */
    int second, table_half; /* where in a table the second half of a head begins */
    int neighbours; /* pairs of x lie side by side: they are parted, the first of all pairs come first */
};

/* The first, or the second, of so many pairs of neighbours. */
ALWAYS vec get_each_other(const void *x, long pair, long left, int second, const int half) {
    vec found = {0};
    for (long i = 0; i < LANES && i < left; i++) found[i] = get(x, 2 * (pair + i) + second, half);
    return found;
}

ALWAYS void rotate_rows(const struct rotation *r, long from, long to, const int half, const int table_half) {
    const long pairs = r->head_dim / 2;
    for (long row = from; row < to; row++) {
        const long batch = row / r->tokens, token = row % r->tokens;
        const long table = batch * r->table_batch + token * r->table_token, other = table + r->second;
        const void *cos = part(r->cos, table, table_half), *cos_b = part(r->cos, other, table_half);
        const void *sin = part(r->sin, table, table_half), *sin_b = part(r->sin, other, table_half);
        for (long h = 0; h < r->heads; h++) {
            const void *x = part(r->x, batch * r->x_batch + h * r->x_head + token * r->x_token, half);
            const void *second = part(x, pairs, half);
            void *out = part(r->out, (row * r->heads + h) * (r->head_dim + r->rest), half);
            void *out_b = part(out, pairs, half);
            memcpy(part(out, r->head_dim, half), part(x, r->head_dim, half), r->rest * (half ? 2 : 4));
            for (long i = 0, left = pairs; left > 0; i += LANES, left -= LANES) {
                const int apart = !r->neighbours;
                const vec x_a = apart ? get_some(x, i, left, half) : get_each_other(x, i, left, 0, half);
                const vec x_b = apart ? get_some(second, i, left, half) : get_each_other(x, i, left, 1, half);
                const vec cos_a = get_some(cos, i, left, table_half), sin_a = get_some(sin, i, left, table_half);
                const vec cos_c = get_some(cos_b, i, left, table_half), sin_c = get_some(sin_b, i, left, table_half);
                put_some(out, i, rounded_lanes(x_a * cos_a, half) - rounded_lanes(x_b * sin_a, half), left, half);
                put_some(out_b, i, rounded_lanes(x_b * cos_c, half) + rounded_lanes(x_a * sin_c, half), left, half);
            }
        }
    }
}

/* Turns the pairs (i, i + head_dim / 2) of each head, or neighbours, by the angles of its token. */
long rotate(void *of) {
    struct rotation *r = of;
    const long some = some_rows(r->heads * r->head_dim);
    for (long from, to; take(&r->part, r->part.rows, some, &from, &to); done(&r->part, from, to))
        if (!r->part.half) rotate_rows(r, from, to, 0, 0);
        else if (r->table_half) rotate_rows(r, from, to, 1, 1);
        else rotate_rows(r, from, to, 1, 0);
    return r->part.rows;
}
