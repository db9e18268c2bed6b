/* A mixture of experts: to which of them each token goes, the products with each one's weights, and their sum. */
#include "product.h"

#define MOST 64 /* experts that a token is sent to */

struct route {
    struct part part;
    int64_t *ids;        /* [rows, each] */
    void *weights;       /* [rows, each] */
    void *logits;        /* [rows, experts] */
    const void *x;       /* [rows, depth] */
    const void *columns; /* [experts, depth]: of a linear layer */
    const void *bias;    /* [experts], or NULL */
    long experts, each, depth;
    int whole, weights_half; /* whether the weights of a row are 1 together */
};

/* The logits of one or two rows and of so many experts from one on. */
ALWAYS void logits_of(const struct route *r, long row, long expert, const int rows, const int experts, const int half) {
    const long depth = r->depth;
    vec sums[2][4] = {0};
    for (long i = 0, left = depth; left > 0; i += LANES, left -= LANES) {
        vec x[2];
        for (int j = 0; j < rows; j++) x[j] = get_some(part(r->x, (row + j) * depth, half), i, left, half);
        for (int e = 0; e < experts; e++) {
            const vec by = get_some(part(r->columns, (expert + e) * depth, half), i, left, half);
            for (int j = 0; j < rows; j++) sums[j][e] = times_plus(x[j], by, sums[j][e]);
        }
    }
    for (int e = 0; e < experts; e++) {
        const float bias = r->bias ? get(r->bias, expert + e, half) : 0;
        for (int j = 0; j < rows; j++) put(r->logits, (row + j) * r->experts + expert + e, summed(sums[j][e]) + bias, half);
    }
}

ALWAYS void all_logits(const struct route *r, long from, long to, const int half) {
    for (long row = from; row < to; row += 2) {
        const int both = row + 1 < to;
        long e = 0;
        for (; e + 4 <= r->experts; e += 4)
            if (both) logits_of(r, row, e, 2, 4, half); else logits_of(r, row, e, 1, 4, half);
        for (; e < r->experts; e++)
            if (both) logits_of(r, row, e, 2, 1, half); else logits_of(r, row, e, 1, 1, half);
    }
}

ALWAYS void route_rows(const struct route *r, long from, long to, const int half) {
    const long experts = r->experts, each = r->each, whole = experts / LANES * LANES;
    all_logits(r, from, to, half);
    for (long row = from; row < to; row++) {
        const void *logits = part(r->logits, row * experts, half);
        int64_t *ids = r->ids + row * each;
        float best[MOST], sum = 0;
        for (long i = 0, known = 0; i < experts; i++) {
            const float x = get(logits, i, half);
            if (known == each && !(x > best[each - 1])) continue;
            long at = known < each ? known++ : each - 1;
            for (; at && x > best[at - 1]; at--) best[at] = best[at - 1], ids[at] = ids[at - 1];
            best[at] = x, ids[at] = i;
        }
        if (!r->whole) {
            vec sums = {0};
            for (long i = 0; i < whole; i += LANES) sums += exponentials(get_lanes(logits, i, half) - best[0]);
            sum = summed(sums);
            for (long i = whole; i < experts; i++) sum += exponential(get(logits, i, half) - best[0]);
        }
        for (long i = each; i--;) best[i] = exponential(best[i] - best[0]);
        for (long i = 0; i < each && r->whole; i++) sum += best[i];
        for (long i = 0; i < each; i++) put(r->weights, row * each + i, best[i] / sum, r->weights_half);
    }
}

/* The experts with the highest logits of each row, the first of equals, and what the softmax makes of these. */
long route(void *of) {
    struct route *r = of;
    const long some = some_rows(r->experts * (8 + r->depth / LANES));
    for (long from, to; take(&r->part, r->part.rows, some, &from, &to); done(&r->part, from, to))
        if (r->part.half) route_rows(r, from, to, 1); else route_rows(r, from, to, 0);
    return r->part.rows;
}

struct sort {
    struct part part;   /* rows: pairs of a token and one of the experts that it goes to */
    int32_t *starts;    /* [experts + 1]: of each expert's pairs, once they are sorted */
    int32_t *at;        /* [rows]: where each pair is then, or -1: its expert is none of these */
    int64_t *tokens;    /* [rows]: whose the sorted ones are; of those beyond the last token 0 */
    int32_t *tally;     /* [all experts]: to which the numbers of pairs are added; or NULL */
    const int64_t *ids; /* [rows]: of experts */
    long first, experts, each; /* so many experts from one on, and of a token's pairs */
};

/* The pairs by their experts, those of one in the order of their tokens. */
long sort(void *of) {
    struct sort *s = of;
    for (long from, to; take(&s->part, 1, 1, &from, &to); done(&s->part, from, to)) {
        const long pairs = s->part.rows;
        const unsigned long experts = s->experts;
        int32_t *starts = s->starts;
        memset(starts, 0, (experts + 1) * sizeof *starts);
        for (long i = 0; i < pairs; i++) {
            const unsigned long id = s->ids[i] - s->first; /* of one before the first, a large number */
            if (id < experts) starts[id + 1]++;
            if (s->tally) s->tally[s->ids[i]]++;
        }
        for (unsigned long i = 0; i < experts; i++) starts[i + 1] += starts[i];
        for (long i = starts[experts]; i < pairs; i++) s->tokens[i] = 0;
        for (long i = 0; i < pairs; i++) { /* each start moves on to its end, which is the next one's start */
            const unsigned long id = s->ids[i] - s->first;
            const long place = s->at[i] = id < experts ? starts[id]++ : -1;
            if (place >= 0) s->tokens[place] = i / s->each;
        }
        for (long i = experts; i--;) starts[i + 1] = starts[i];
        starts[0] = 0;
    }
    return 1;
}

struct experts {
    struct part part;      /* rows: of all experts */
    void *out;             /* [rows, columns], or, gated, half of these */
    const void *x;         /* [rows, depth] */
    const void *weight;    /* one of each expert, whole panels, as a product has it */
    const void *bias;      /* [experts, columns], or NULL */
    const int32_t *starts; /* [experts + 1]: of each one's rows */
    struct scales scales;  /* of codes, one expert's after another's */
    long experts, columns, depth;
    int gate, coding; /* as of a product */
};

/* Those of an expert's codes, which are so many panels. */
ALWAYS struct scales scales_of_expert(const struct experts *e, long expert, long panels) {
    struct scales s = e->scales;
    const long before = expert * panels * PANEL, bytes = e->coding == ENTRIES_TWICE || e->coding == POWERS ? 1 : 4;
    s.steps = (const char *)s.steps + before * (e->depth / s.group) * bytes;
    if (s.first) s.first += before;
    return s;
}

/* The rows of an expert as a product of their own. */
ALWAYS struct product product_of(const struct experts *e, long expert) {
    const long first = e->starts[expert], bytes = e->part.half ? 2 : 4;
    const long panels = (e->columns + PANEL - 1) / PANEL, made = e->gate ? e->columns / 2 : e->columns;
    const long bits = e->coding ? 32 / codes_of_a_word(e->coding) : 8 * bytes;
    return (struct product){
        .part = {.rows = e->starts[expert + 1] - first, .half = e->part.half},
        .out = (char *)e->out + first * made * bytes,
        .x = (const char *)e->x + first * e->depth * bytes,
        .weight = (const char *)e->weight + expert * panels * PANEL * e->depth * bits / 8,
        .bias = e->bias ? (const char *)e->bias + expert * e->columns * bytes : NULL,
        .scales = e->coding ? scales_of_expert(e, expert, panels) : e->scales,
        .columns = e->columns, .depth = e->depth, .x_stride = e->depth, .out_stride = made, .gate = e->gate, .coding = e->coding,
    };
}

/* The product of each row with the weight of its expert. How many tasks there are is told by the sizes alone, and those
 * beyond the last are nothing: what lies in `starts` stays only as long as there is a task that is not done, so a thread
 * that comes late must not look there before it has one. */
long experts(void *of) {
    struct experts *e = of;
    const long rows = e->part.rows, made = e->gate ? e->columns / 2 : e->columns, panels = (made + PANEL - 1) / PANEL;
    const long tasks = panels * ((rows < e->experts ? rows : e->experts) + rows / (ROWS * TILES));
    long next = 0, begin = 0, end = 0; /* the expert after this one, and the tasks of this one */
    struct product p;
    struct cut cut;
    for (long task, to; take(&e->part, tasks, 1, &task, &to); done(&e->part, task, to)) {
        for (; task >= end && next < e->experts; next++) {
            p = product_of(e, next), cut = cut_of(&p, 0);
            begin = end, end += cut.parts * cut.groups;
        }
        if (task < end) multiply_task(&p, cut, task - begin);
    }
    return tasks;
}

struct combine {
    struct part part;    /* rows: tokens */
    void *out;           /* [rows, width] */
    const void *x;       /* [rows * each, width] */
    const void *weights; /* [rows, each] */
    const int32_t *at;   /* [rows, each]: rows of x, or -1: what is somewhere else */
    long each, width;
    int weights_half;
};

ALWAYS void combine_rows(const struct combine *c, long from, long to, const int half) {
    const long width = c->width, each = c->each;
    float by[MOST];
    const void *rows[MOST];
    for (long r = from; r < to; r++) {
        long here = 0;
        for (long j = r * each; j < (r + 1) * each; j++)
            if (c->at[j] >= 0) {
                by[here] = get(c->weights, j, c->weights_half);
                rows[here++] = part(c->x, c->at[j] * width, half);
            }
        void *out = part(c->out, r * width, half);
        for (long i = 0, left = width; left > 0; i += LANES, left -= LANES) {
            vec sum = {0};
            for (long j = 0; j < here; j++) sum = times_plus(every(by[j]), get_some(rows[j], i, left, half), sum);
            put_some(out, i, sum, left, half);
        }
    }
}

/* What the experts of each token make of it, by their weights. */
long combine(void *of) {
    struct combine *c = of;
    const long some = some_rows(c->width * c->each);
    for (long from, to; take(&c->part, c->part.rows, some, &from, &to); done(&c->part, from, to))
        if (c->part.half) combine_rows(c, from, to, 1); else combine_rows(c, from, to, 0);
    return c->part.rows;
}
