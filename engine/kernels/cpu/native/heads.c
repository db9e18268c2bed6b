/* What is done by heads: a product of each with a weight of its own, and copies of what lies beside it. */
#include "product.h"

struct heads {
    struct part part;   /* rows: tokens */
    void *out;          /* [rows, heads, columns + rest] by its strides */
    const void *x;      /* [rows, heads, depth + rest] by its strides */
    const void *weight; /* one of each head, whole panels, as a product has it; NULL where depth is 0 */
    long heads, columns, depth, rest, x_token, x_head, out_token, out_head;
};

/* Of a head the product of its first `depth` values. */
ALWAYS struct product product_of(const struct heads *h, long head) {
    const long panels = (h->columns + PANEL - 1) / PANEL, bytes = h->part.half ? 2 : 4;
    return (struct product){
        .part = {.rows = h->part.rows, .half = h->part.half},
        .out = part(h->out, head * h->out_head, h->part.half),
        .x = part(h->x, head * h->x_head, h->part.half),
        .weight = (const char *)h->weight + head * panels * PANEL * h->depth * bytes,
        .columns = h->columns, .depth = h->depth, .x_stride = h->x_token, .out_stride = h->out_token,
    };
}

/* The rest of a head's values go beside that. */
static void copy_rest(const struct heads *h, long head) {
    const int half = h->part.half;
    for (long t = 0; t < h->part.rows; t++)
        memcpy(part(h->out, t * h->out_token + head * h->out_head + h->columns, half),
               part(h->x, t * h->x_token + head * h->x_head + h->depth, half), h->rest * (half ? 2 : 4));
}

long by_heads(void *of) {
    struct heads *h = of;
    struct cut cut = {0};
    if (h->depth) {
        const struct product any = product_of(h, 0);
        cut = cut_of(&any, 4 * omp_get_num_threads() / h->heads + 1);
    }
    const long products = cut.parts * cut.groups, each = products + !!h->rest, tasks = each * h->heads;
    for (long task, end; take(&h->part, tasks, 1, &task, &end); done(&h->part, task, end)) {
        const long head = task / each;
        const struct product p = product_of(h, head);
        if (task % each < products) multiply_task(&p, cut, task % each); else copy_rest(h, head);
    }
    return tasks;
}
