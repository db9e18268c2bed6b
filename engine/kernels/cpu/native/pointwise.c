/* What is done to single values, and the rows that are looked up. */
#include "common.h"

struct pointwise {
    struct part part;
    void *out;
    const void *a, *b; /* as out, their rows a_stride and b_stride apart */
    long columns, a_stride, b_stride;
    float by;
    int kind; /* a + b, a * b, a * by, tanh a, a, 1 / (1 + exp -a), silu a, a * the one b of its row */
};

ALWAYS void values(const struct pointwise *p, long from, long to, const int half, const int kind) {
    const long columns = p->columns;
    const float by = p->by;
    for (long r = from; r < to; r++) {
        const void *a = part(p->a, r * p->a_stride, half), *b = part(p->b, r * p->b_stride, half);
        void *out = part(p->out, r * columns, half);
        for (long i = 0, left = columns; left > 0; i += LANES, left -= LANES) {
            vec x = get_some(a, i, left, half);
            if (kind == 0) x += get_some(b, i, left, half);
            if (kind == 1) x *= get_some(b, i, left, half);
            if (kind == 2) x *= by;
            if (kind == 3) x = 1.0f - over((vec){0} + 2.0f, exponentials(2.0f * x) + 1.0f);
            if (kind == 5) x = over(every(1.0f), 1.0f + exponentials(-x));
            if (kind == 6) x = activated(x, 0);
            if (kind == 7) x *= get(b, 0, half);
            put_some(out, i, x, left, half);
        }
    }
}

ALWAYS void values_as(const struct pointwise *p, long from, long to, const int half) {
    if (p->kind == 0) values(p, from, to, half, 0);
    else if (p->kind == 1) values(p, from, to, half, 1);
    else if (p->kind == 2) values(p, from, to, half, 2);
    else if (p->kind == 3) values(p, from, to, half, 3);
    else if (p->kind == 4) values(p, from, to, half, 4);
    else if (p->kind == 5) values(p, from, to, half, 5);
    else if (p->kind == 6) values(p, from, to, half, 6);
    else values(p, from, to, half, 7);
}

long pointwise(void *of) {
    struct pointwise *p = of;
    for (long from, to; take(&p->part, p->part.rows, some_rows(p->columns), &from, &to); done(&p->part, from, to))
        if (p->part.half) values_as(p, from, to, 1); else values_as(p, from, to, 0);
    return p->part.rows;
}

struct lookup {
    struct part part;
    void *out;          /* [rows, width] */
    const void *table;  /* [entries, width] */
    const int64_t *ids; /* [rows] */
    long width;
};

/* Rows of a table. */
long lookup(void *of) {
    struct lookup *l = of;
    const long bytes = l->width * (l->part.half ? 2 : 4);
    for (long from, to; take(&l->part, l->part.rows, some_rows(l->width), &from, &to); done(&l->part, from, to))
        for (long r = from; r < to; r++)
            memcpy((char *)l->out + r * bytes, (const char *)l->table + l->ids[r] * bytes, bytes);
    return l->part.rows;
}

struct angles {
    struct part part;
    void *cos, *sin;          /* [rows, width], or twice as wide: once more beside it */
    const int64_t *positions; /* [rows] */
    const float *frequencies; /* [width] */
    long width;
    float scale;
    int twice;
};

/* The cosines and sines of a rotary embedding. */
long angles(void *of) {
    struct angles *a = of;
    const long width = a->width, whole = a->twice ? 2 * width : width;
    const int half = a->part.half;
    for (long r, to; take(&a->part, a->part.rows, 1, &r, &to); done(&a->part, r, to))
        for (long i = 0; i < whole; i++) {
            const float angle = a->positions[r] * a->frequencies[i < width ? i : i - width];
            if (i < width) {
                put(a->cos, r * whole + i, cosf(angle) * a->scale, half);
                put(a->sin, r * whole + i, sinf(angle) * a->scale, half);
            } else {
                put(a->cos, r * whole + i, get(a->cos, r * whole + i - width, half), half);
                put(a->sin, r * whole + i, get(a->sin, r * whole + i - width, half), half);
            }
        }
    return a->part.rows;
}
