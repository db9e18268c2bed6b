/* What the ranks of a split model tell each other, through memory that they share.
 *
 * Each rank has a lane there: words, a ring of what its steps took, and two buffers in turn. Its n-th message is written
 * to the n-th buffer modulo two once all have published their (n - 1)-th, since whoever published that has read all
 * messages n - 2; then `SEQUENCE` becomes n. Sums are made by every rank in the order of the ranks: all get the same.
 * A rank's share of the rows is as even as can be, so with few rows some have none.
 */
#include "common.h"
#include "waiting.h"

#define SPINS 4000            /* some 0.1 ms: longer than ranks are apart, where each has processors of its own */
#define GLANCE 20000000L      /* nanoseconds between looks at whether a rank is gone */
#define CALLS 1024 /* of a step, whose times are told apart */

enum { SEQUENCE, SIZES, WAITS = 3, SLOT, BROKEN, SLEEPERS, STOPPED }; /* words of a lane; `SIZES` of both buffers' messages */
enum { CALLED = 1, BYTES, BEGUN, ENDED, TIMES = 8 }; /* words of what a step took, in nanoseconds */

/* What comes of a message: the sum of all, for all; the ranks' columns side by side, on rank 0 alone; of that sum each
 * rank's share of the rows; the ranks' shares of the rows one after another, for all. */
enum { ALL_SUMMED, COLUMNS, SHARE_SUMMED, ROWS };

struct exchange {
    struct part part; /* rows: of the whole step, also where a rank has a share of them */
    void *out;        /* [rows or share, total]; of COLUMNS none on the other ranks */
    const void *x;    /* [rows, width]; of ROWS [share, width] */
    char *lanes;      /* of rank 0, 1 ... */
    long rank, ranks, lane, buffers, buffer; /* bytes of a lane, to its first buffer, and of each buffer */
    long width, total;
    long patience;    /* nanoseconds */
    int kind;
};

ALWAYS long *lane_of(const struct exchange *e, long rank) { return (long *)(e->lanes + rank * e->lane); }
ALWAYS char *buffer_of(const struct exchange *e, long rank, long n) {
    return e->lanes + rank * e->lane + e->buffers + (n & 1) * e->buffer;
}

/* Whether a rank gave up for good, or stopped in this step. */
static int any(const struct exchange *e, int word) {
    for (long r = 0; r < e->ranks; r++)
        if (__atomic_load_n(lane_of(e, r) + word, __ATOMIC_RELAXED)) return 1;
    return 0;
}

/* Until all others have published their n-th message. Gives whether they have. */
static int published(const struct exchange *e, long n, long until) {
    for (long rank = 0; rank < e->ranks; rank++) {
        long *lane = lane_of(e, rank);
        long seen;
        for (long spins = 0; (seen = __atomic_load_n(lane + SEQUENCE, __ATOMIC_ACQUIRE)) < n; spins++) {
            if (spins < SPINS) {
                spin_once();
                continue;
            }
            sleep_while(lane + SEQUENCE, lane + SLEEPERS, seen, GLANCE);
            if (any(e, BROKEN) || any(e, STOPPED) || now() > until) return 0;
        }
    }
    return 1;
}

/* Of the n-th messages so many values from the `first` on; this rank's are at `mine`, which need not be in its buffer. */
ALWAYS void sum_up(const struct exchange *e, void *out, const void *mine, long n, long first, long values, const int half) {
    for (long i = 0, left = values; left > 0; i += LANES, left -= LANES) {
        vec x = {0};
        for (long rank = 0; rank < e->ranks; rank++) {
            const vec theirs = get_some(rank == e->rank ? (char *)mine : part(buffer_of(e, rank, n), first, half), i, left, half);
            if (rank) x += theirs; else x = theirs;
        }
        put_some(out, i, x, left, half);
    }
}

/* Where a rank's share of so many rows begins; where it ends, the next one's does. */
ALWAYS long share_of(long rows, long rank, long ranks) { return rows * rank / ranks; }
ALWAYS long within(long at, long from, long to) { return at < from ? from : at > to ? to : at; }

/* Adds a call that began then to what its step took. */
static void account(const struct exchange *e, long begun, long sent) {
    long *mine = lane_of(e, e->rank), *step = (long *)((char *)mine + mine[SLOT]);
    step[ENDED] = now();
    if (step[CALLED] < CALLS) step[TIMES + step[CALLED]] = step[ENDED] - begun;
    step[BYTES] += sent;
    __atomic_store_n(step + CALLED, step[CALLED] + 1, __ATOMIC_RELEASE);
}

/* Writes what others need of the rows from `from` to `to` to this rank's n-th message, and gives its bytes. */
static long write_message(const struct exchange *e, long n, long from, long to) {
    const long item = e->part.half ? 2 : 4, bytes = e->width * item, rows = e->part.rows;
    const long begin = within(share_of(rows, e->rank, e->ranks), from, to), end = within(share_of(rows, e->rank + 1, e->ranks), from, to);
    char *there = buffer_of(e, e->rank, n);
    const char *x = e->x;
    if (e->kind == ROWS) {
        memcpy(there + (begin - from) * bytes, x + (begin - share_of(rows, e->rank, e->ranks)) * bytes, (end - begin) * bytes);
        return (end - begin) * bytes;
    }
    if (e->kind == SHARE_SUMMED) {
        memcpy(there, x + from * bytes, (begin - from) * bytes);
        memcpy(there + (end - from) * bytes, x + end * bytes, (to - end) * bytes);
        return (to - from - (end - begin)) * bytes;
    }
    memcpy(there, x + from * bytes, (to - from) * bytes);
    return (to - from) * bytes;
}

/* Makes of all ranks' n-th messages what comes of the rows from `from` to `to`. */
static void read_messages(const struct exchange *e, long n, long from, long to) {
    const long item = e->part.half ? 2 : 4, bytes = e->total * item, rows = e->part.rows;
    char *out = e->out;
    if (e->kind == ALL_SUMMED || e->kind == SHARE_SUMMED) {
        const long first = e->kind == ALL_SUMMED ? 0 : share_of(rows, e->rank, e->ranks);
        const long begin = e->kind == ALL_SUMMED ? from : within(first, from, to);
        const long end = e->kind == ALL_SUMMED ? to : within(share_of(rows, e->rank + 1, e->ranks), from, to);
        const void *mine = (const char *)e->x + begin * bytes;
        const long skipped = (begin - from) * e->total, values = (end - begin) * e->total;
        if (e->part.half) sum_up(e, out + (begin - first) * bytes, mine, n, skipped, values, 1);
        else sum_up(e, out + (begin - first) * bytes, mine, n, skipped, values, 0);
        return;
    }
    for (long rank = 0; rank < e->ranks; rank++) {
        const char *theirs = buffer_of(e, rank, n);
        if (e->kind == ROWS) {
            const long begin = within(share_of(rows, rank, e->ranks), from, to), end = within(share_of(rows, rank + 1, e->ranks), from, to);
            memcpy(out + begin * bytes, theirs + (begin - from) * bytes, (end - begin) * bytes);
            continue;
        }
        const long begin = share_of(e->total, rank, e->ranks), width = share_of(e->total, rank + 1, e->ranks) - begin;
        for (long r = 0; r < to - from; r++)
            memcpy(out + (from + r) * bytes + begin * item, theirs + r * width * item, width * item);
    }
}

static int exchanged(const struct exchange *e, long begun, long until) {
    const long rows = e->part.rows, some = e->buffer / (e->total * (e->part.half ? 2 : 4));
    const int tells = e->kind == COLUMNS && e->rank; /* and hears nothing */
    long *mine = lane_of(e, e->rank), sent = 0;
    for (long from = 0; from < rows; from += some) {
        const long to = rows - from < some ? rows : from + some, n = mine[SEQUENCE] + 1, size = (to - from) * e->total;
        if (!published(e, n - 1, until)) return 0;
        sent += write_message(e, n, from, to);
        mine[SIZES + (n & 1)] = size;
        if (tells && to == rows) account(e, begun, sent); /* before rank 0 goes on, and reads it */
        publish(mine + SEQUENCE, mine + SLEEPERS, n);
        if (tells) continue;
        if (!published(e, n, until)) return 0;
        for (long rank = 0; rank < e->ranks; rank++)
            if (lane_of(e, rank)[SIZES + (n & 1)] != size) return 0; /* they are not in the same place of a step */
        read_messages(e, n, from, to);
    }
    if (!tells) account(e, begun, sent);
    return 1;
}

/* One message of every rank, to all. It fails where another does not come, or is elsewhere. */
long exchange(void *of) {
    struct exchange *e = of;
    long from, to;
    if (!take(&e->part, 1, 1, &from, &to)) return 1;
    if (e->part.rows) {
        long *mine = lane_of(e, e->rank);
        const long begun = now();
        __atomic_store_n(mine + WAITS, begun, __ATOMIC_RELAXED);
        e->part.failed = !exchanged(e, begun, begun + e->patience);
        if (!e->part.failed) __atomic_store_n(mine + WAITS, 0, __ATOMIC_RELAXED); /* else it stays, and says when */
        else if (!any(e, STOPPED)) __atomic_store_n(mine + BROKEN, 1, __ATOMIC_RELAXED);
    }
    done(&e->part, 0, 1);
    return 1;
}

struct share {
    struct part part; /* rows: of all ranks together */
    void *out;        /* [share, bytes] */
    const void *x;    /* [rows, bytes] */
    long rank, ranks, bytes;
};

/* This rank's share of the rows. */
long share_rows(void *of) {
    struct share *s = of;
    long from, to;
    if (!take(&s->part, 1, 1, &from, &to)) return 1;
    const long begin = share_of(s->part.rows, s->rank, s->ranks), end = share_of(s->part.rows, s->rank + 1, s->ranks);
    memcpy(s->out, (const char *)s->x + begin * s->bytes, (end - begin) * s->bytes);
    done(&s->part, 0, 1);
    return 1;
}

/* What a step that rank 0 is done with took each rank, as `account` noted it at `slot` bytes in each lane: by rank the
 * seconds of computing, of waiting for a rank that was not ready, and the bytes sent; at the end the seconds of
 * communicating, the same for all: the last to come to a call waits for nobody. Gives 0 where one does not tell yet. */
int step_times(char *lanes, long ranks, long lane, long slot, long number, double *out) {
    const long calls = ((long *)(lanes + slot))[CALLED];
    for (long r = 0; r < ranks; r++) {
        const long *step = (long *)(lanes + r * lane + slot);
        if (step[0] != number || __atomic_load_n(step + CALLED, __ATOMIC_ACQUIRE) != calls) return 0;
    }
    long together = 0;
    for (long call = 0; call < (calls < CALLS ? calls : CALLS); call++) {
        long least = LONG_MAX;
        for (long r = 0; r < ranks; r++) {
            const long took = ((long *)(lanes + r * lane + slot))[TIMES + call];
            if (took < least) least = took;
        }
        together += least;
    }
    for (long r = 0; r < ranks; r++) {
        const long *step = (long *)(lanes + r * lane + slot);
        long inside = 0;
        for (long call = 0; call < (calls < CALLS ? calls : CALLS); call++) inside += step[TIMES + call];
        const long rest = step[ENDED] - step[BEGUN] - inside;
        out[3 * r] = 1e-9 * (rest > 0 ? rest : 0);
        out[3 * r + 1] = 1e-9 * (inside - together);
        out[3 * r + 2] = step[BYTES];
    }
    out[3 * ranks] = 1e-9 * together;
    return 1;
}
