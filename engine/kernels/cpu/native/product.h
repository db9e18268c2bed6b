/* Products with a weight that was laid out for them: [panels][depth][PANEL] of float32, or, of bfloat16,
 * [panels][depth / 2][PANEL][2], or of codes (codes.h). A tile of the result, some rows by a panel's columns, stays in
 * registers while the panel passes by once.
 *
 * What a step does next to every value of a result can be done to the tile, instead of writing it and reading it again:
 * the sum with a residual, or act(gate) * up where gates and ups are the weight's two halves.
 */
#include "codes.h"

#define ROWS 6   /* of a tile */
#define TILES 16 /* of one task: a panel is read from memory for so many */
#define HIDDEN __attribute__((visibility("hidden"))) /* of no other library: it can be put in place where it is called */

enum { SILU = 1, GELU, CLAMPED };

struct product {
    struct part part;
    void *out;            /* [rows, columns], or, gated, half of these; rows out_stride apart */
    const void *x;        /* [rows, depth], rows x_stride apart */
    const void *weight;   /* as above */
    const void *bias;     /* [columns], or NULL */
    const void *residual; /* as out, rows residual_stride apart; or NULL */
    const float *by;      /* what each row is times before anything else, [rows]; or NULL */
    struct scales scales; /* of codes */
    long columns, depth, x_stride, out_stride, residual_stride;
    int gate;             /* how it is activated; 0: it is none. Half of the columns are then whole panels */
    int coding;           /* of the weight; 0: it is none */
};

/* The tasks of a product: one is a group of its tiles by a part of its panels, so many `together`. */
struct cut {
    long parts, groups, together;
};

/* So that there are some `wanted` tasks, if that can be: something to do for every thread. */
HIDDEN struct cut cut_of(const struct product *p, long wanted);
HIDDEN void multiply_task(const struct product *p, struct cut cut, long task);
