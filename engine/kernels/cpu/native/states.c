/* What layers keep of a sequence in the place of keys and values: convolutions over its last tokens, and a recurrence.
 * Tokens of one sequence come one after another, each in the slot of its states; at position 0 it has none yet.
 */
#include "common.h"

struct convolution {
    struct part part;         /* rows: tokens */
    void *out;                /* [rows, channels] */
    void *kept;               /* [slots, taps, channels]: the newest inputs, the last of them last */
    const void *x;            /* as out, rows x_stride apart */
    const float *weight;      /* [taps, channels] */
    const float *bias;        /* [channels], or NULL */
    const int32_t *slots;     /* [rows] */
    const int64_t *positions; /* [rows] */
    long channels, taps, x_stride;
    int silu;
};

/* Of some channels, all tokens. */
ALWAYS void convolve(const struct convolution *c, long from, long to, const int half) {
    const long taps = c->taps, channels = c->channels;
    for (long t = 0; t < c->part.rows; t++) {
        void *kept = part(c->kept, c->slots[t] * taps * channels, half);
        const void *x = part(c->x, t * c->x_stride, half);
        void *out = part(c->out, t * channels, half);
        const int begins = !c->positions[t];
        for (long i = from; i < to; i += LANES) {
            const long left = to - i;
            vec sum = c->bias ? get_some(c->bias, i, left, 0) : (vec){0};
            for (long tap = 0; tap + 1 < taps; tap++) {
                vec before = {0};
                if (!begins) before = get_some(kept, (tap + 1) * channels + i, left, half);
                sum = times_plus(before, get_some(c->weight, tap * channels + i, left, 0), sum);
                put_some(kept, tap * channels + i, before, left, half);
            }
            const vec now = get_some(x, i, left, half);
            put_some(kept, (taps - 1) * channels + i, now, left, half);
            sum = times_plus(now, get_some(c->weight, (taps - 1) * channels + i, left, 0), sum);
            if (c->silu) sum = activated(rounded_lanes(sum, half), 0);
            put_some(out, i, sum, left, half);
        }
    }
}

/* A causal convolution of each channel by itself. */
long convolution(void *of) {
    struct convolution *c = of;
    const long each = 4 * LANES, tasks = (c->channels + each - 1) / each;
    for (long task, end; take(&c->part, tasks, 1, &task, &end); done(&c->part, task, end)) {
        const long from = task * each, to = from + each < c->channels ? from + each : c->channels;
        if (c->part.half) convolve(c, from, to, 1); else convolve(c, from, to, 0);
    }
    return tasks;
}

struct delta {
    struct part part;         /* rows: tokens */
    void *out;                /* [rows, heads, value] */
    float *states;            /* [slots, heads, key, value] */
    const void *mixed;        /* [rows, ...]: queries and keys [groups, key] each, then values [heads, value] */
    const void *gate;         /* [rows, heads, value], rows gate_stride apart */
    const void *write;        /* [rows, heads] by write_stride: how much of what is new is written, before a sigmoid */
    const void *forget;       /* the same by forget_stride: how much of what is there is forgotten, before a softplus */
    const float *decay;       /* [heads]: of a softplus of 1, as an exponent */
    const float *bias;        /* [heads], of what is forgotten */
    const float *norm;        /* [value] */
    const int32_t *slots;     /* [rows] */
    const int64_t *positions; /* [rows] */
    long groups, heads, key, value, gate_stride, write_stride, forget_stride;
    float eps;
};

enum { WIDEST = 256, SOME = 16 }; /* of a head; tokens that go through a state's columns before the next columns */

ALWAYS float softplus(float x) { return x > 20.0f ? x : log1pf(exponential(x)); }

/* A token of one head: its query and its key in float32, both of length 1, the query by 1 / sqrt(key); how much of what
 * is there stays, how much of what is new is written; what is said. */
struct step {
    float q[WIDEST], k[WIDEST], said[WIDEST];
    float *state;
    const void *v;
    float stays, write;
};

ALWAYS void of_length(float *to, const void *from, long width, float by, const int half) {
    vec squares = {0};
    for (long i = 0; i < width; i += LANES) {
        const vec x = get_lanes(from, i, half);
        squares += x * x;
        *(vec *)(to + i) = x;
    }
    by /= sqrtf(summed(squares) + 1e-6f);
    for (long i = 0; i < width; i += LANES) *(vec *)(to + i) *= by;
}

ALWAYS struct step *prepared(struct step *s, const struct delta *d, long head, long t, const int half) {
    const long key = d->key, value = d->value, group = head * d->groups / d->heads;
    const void *row = part(d->mixed, t * (2 * d->groups * key + d->heads * value), half);
    s->state = d->states + (d->slots[t] * d->heads + head) * key * value;
    s->v = part(row, 2 * d->groups * key + head * value, half);
    of_length(s->q, part(row, group * key, half), key, 1.0f / sqrtf(key), half);
    of_length(s->k, part(row, (d->groups + group) * key, half), key, 1.0f, half);
    const float write = 1.0f / (1.0f + exponential(-get(d->write, t * d->write_stride + head, half)));
    s->write = rounded_lanes(every(write), half)[0];
    const float forget = get(d->forget, t * d->forget_stride + head, half) + d->bias[head];
    s->stays = exponential(-d->decay[head] * softplus(forget));
    return s;
}

/* Of `wide` vectors of a head's values what the state holds for a key, and then, with what it lacks of the value written
 * to it, for a query: each number of the state is read twice and written once. */
ALWAYS void columns(struct step *s, long from, long key, long value, const int wide, const int half) {
    vec held[2][2] = {{{0}}}, said[2][2] = {{{0}}}, lacks[2];
    for (long i = 0; i < key; i += 2)
        for (int odd = 0; odd < 2; odd++)
            for (int w = 0; w < wide; w++)
                held[w][odd] += *(const vec *)(s->state + (i + odd) * value + from + w * LANES) * s->k[i + odd];
    for (int w = 0; w < wide; w++)
        lacks[w] = (get_lanes(s->v, from + w * LANES, half) - (held[w][0] + held[w][1]) * s->stays) * s->write;
    for (long i = 0; i < key; i += 2)
        for (int odd = 0; odd < 2; odd++)
            for (int w = 0; w < wide; w++) {
                vec *at = (vec *)(s->state + (i + odd) * value + from + w * LANES);
                const vec now = *at * s->stays + lacks[w] * s->k[i + odd];
                *at = now;
                said[w][odd] += now * s->q[i + odd];
            }
    for (int w = 0; w < wide; w++) *(vec *)(s->said + from + w * LANES) = rounded_lanes(said[w][0] + said[w][1], half);
}

/* What is said, normed and gated. */
ALWAYS void put_gated(const struct step *s, const struct delta *d, long head, long t, const int half) {
    const long value = d->value;
    vec squares = {0};
    for (long i = 0; i < value; i += LANES) squares += *(const vec *)(s->said + i) * *(const vec *)(s->said + i);
    const float by = 1.0f / sqrtf(summed(squares) / value + d->eps);
    const void *gate = part(d->gate, t * d->gate_stride + head * value, half);
    void *to = part(d->out, (t * d->heads + head) * value, half);
    for (long i = 0; i < value; i += LANES) {
        const vec y = rounded_lanes(*(const vec *)(s->said + i) * by, half) * get_lanes(d->norm, i, 0);
        put_lanes(to, i, rounded_lanes(y, half) * activated(get_lanes(gate, i, half), 0), half);
    }
}

/* One head, all tokens: some of them go through some columns of their states, which stay near the processor if they are
 * of one sequence, then through the next. */
ALWAYS void recur(const struct delta *d, long head, const int half) {
    const long key = d->key, value = d->value;
    struct step steps[SOME];
    for (long t = 0; t < d->part.rows;) {
        long count = 0;
        for (; count < SOME && t + count < d->part.rows && (!count || d->positions[t + count]); count++)
            prepared(steps + count, d, head, t + count, half);
        if (!d->positions[t]) memset(steps->state, 0, key * value * sizeof(float));
        long from = 0;
        for (; from + 2 * LANES <= value; from += 2 * LANES)
            for (long i = 0; i < count; i++) columns(steps + i, from, key, value, 2, half);
        for (; from < value; from += LANES)
            for (long i = 0; i < count; i++) columns(steps + i, from, key, value, 1, half);
        for (long i = 0; i < count; i++) put_gated(steps + i, d, head, t + i, half);
        t += count;
    }
}

/* The gated delta rule (https://arxiv.org/abs/2412.06464, section 3), token by token, normed and gated. */
long delta_rule(void *of) {
    struct delta *d = of;
    for (long head, end; take(&d->part, d->heads, 1, &head, &end); done(&d->part, head, end))
        if (d->part.half) recur(d, head, 1); else recur(d, head, 0);
    return d->heads;
}
