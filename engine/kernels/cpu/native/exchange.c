/* What the ranks of a split model tell each other, through memory that they share.
 *
 * Each rank has a lane there: words, a ring of what its steps took, and two buffers in turn. Its n-th message is written
 * to the n-th buffer modulo two once all have published their (n - 1)-th, since whoever published that has read all
 * messages n - 2; then `SEQUENCE` becomes n. Sums are made by every rank in the order of the ranks: all get the same.
 */
#include "common.h"
#include <limits.h>
#include <sched.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define SPINS 4000            /* some 0.1 ms: longer than ranks are apart, where each has processors of its own */
#define GLANCE 20000000L      /* nanoseconds between looks at whether a rank is gone */
#define CALLS 1024 /* of a step, whose times are told apart */

enum { SEQUENCE, SIZES, WAITS = 3, SLOT, BROKEN, SLEEPERS }; /* words of a lane; `SIZES` of both buffers' messages */
enum { CALLED = 1, BYTES, BEGUN, ENDED, TIMES = 8 }; /* words of what a step took, in nanoseconds */

struct exchange {
    struct part part;
    void *out;       /* [rows, total]: of `gather` the ranks' columns side by side, on rank 0; else their sum */
    const void *x;   /* [rows, width] */
    char *lanes;     /* of rank 0, 1 ... */
    long rank, ranks, lane, buffers, buffer; /* bytes of a lane, to its first buffer, and of each buffer */
    long width, total;
    long patience;   /* nanoseconds */
    int gather;      /* to rank 0; the others have no `out` */
};

static long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

ALWAYS long *lane_of(const struct exchange *e, long rank) { return (long *)(e->lanes + rank * e->lane); }
ALWAYS char *buffer_of(const struct exchange *e, long rank, long n) {
    return e->lanes + rank * e->lane + e->buffers + (n & 1) * e->buffer;
}

/* Where ranks share a processor, the one that waits must not keep it. The lower half of `SEQUENCE` is the futex. */
static void sleep_until_changed(long *lane, long seen) {
#ifdef __linux__
    struct timespec glance = {0, GLANCE};
    __atomic_fetch_add(lane + SLEEPERS, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, (int *)(lane + SEQUENCE), FUTEX_WAIT, (int)seen, &glance, NULL, 0);
    __atomic_fetch_sub(lane + SLEEPERS, 1, __ATOMIC_SEQ_CST);
#else
    sched_yield();
#endif
}

static void publish(long *lane, long n) {
    __atomic_store_n(lane + SEQUENCE, n, __ATOMIC_SEQ_CST);
#ifdef __linux__
    if (__atomic_load_n(lane + SLEEPERS, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, (int *)(lane + SEQUENCE), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#endif
}

/* Until all others have published their n-th message. Gives whether they have. */
static int published(const struct exchange *e, long n, long until) {
    for (long rank = 0; rank < e->ranks; rank++) {
        long *lane = lane_of(e, rank);
        long seen;
        for (long spins = 0; (seen = __atomic_load_n(lane + SEQUENCE, __ATOMIC_ACQUIRE)) < n; spins++) {
            if (spins < SPINS) {
#if defined __x86_64__
                __builtin_ia32_pause();
#endif
                continue;
            }
            sleep_until_changed(lane, seen);
            for (long r = 0; r < e->ranks; r++)
                if (__atomic_load_n(lane_of(e, r) + BROKEN, __ATOMIC_RELAXED)) return 0;
            if (now() > until) return 0;
        }
    }
    return 1;
}

ALWAYS void sum_up(const struct exchange *e, void *out, long n, long values, const int half) {
    for (long i = 0, left = values; left > 0; i += LANES, left -= LANES) {
        vec x = get_some(buffer_of(e, 0, n), i, left, half);
        for (long rank = 1; rank < e->ranks; rank++) x += get_some(buffer_of(e, rank, n), i, left, half);
        put_some(out, i, x, left, half);
    }
}

/* Adds a call that began then to what its step took. */
static void account(const struct exchange *e, long begun) {
    long *mine = lane_of(e, e->rank), *step = (long *)((char *)mine + mine[SLOT]);
    step[ENDED] = now();
    if (step[CALLED] < CALLS) step[TIMES + step[CALLED]] = step[ENDED] - begun;
    step[BYTES] += e->part.rows * e->width * (e->part.half ? 2 : 4);
    __atomic_store_n(step + CALLED, step[CALLED] + 1, __ATOMIC_RELEASE);
}

static int exchanged(const struct exchange *e, long begun, long until) {
    const long item = e->part.half ? 2 : 4, rows = e->part.rows, some = e->buffer / (e->total * item);
    long *mine = lane_of(e, e->rank);
    for (long from = 0; from < rows; from += some) {
        const long count = rows - from < some ? rows - from : some, n = mine[SEQUENCE] + 1, size = count * e->total;
        if (!published(e, n - 1, until)) return 0;
        memcpy(buffer_of(e, e->rank, n), (const char *)e->x + from * e->width * item, count * e->width * item);
        mine[SIZES + (n & 1)] = size;
        if (e->gather && e->rank && from + some >= rows) account(e, begun); /* before rank 0 goes on, and reads it */
        publish(mine, n);
        if (e->gather && e->rank) continue;
        if (!published(e, n, until)) return 0;
        for (long rank = 0; rank < e->ranks; rank++)
            if (lane_of(e, rank)[SIZES + (n & 1)] != size) return 0; /* they are not in the same place of a step */
        char *out = (char *)e->out + from * e->total * item;
        if (!e->gather) {
            if (e->part.half) sum_up(e, out, n, size, 1); else sum_up(e, out, n, size, 0);
            continue;
        }
        for (long rank = 0; rank < e->ranks; rank++) {
            const long begin = e->total * rank / e->ranks, width = e->total * (rank + 1) / e->ranks - begin;
            const char *theirs = buffer_of(e, rank, n);
            for (long r = 0; r < count; r++)
                memcpy(out + (r * e->total + begin) * item, theirs + r * width * item, width * item);
        }
    }
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
        if (e->part.failed) __atomic_store_n(mine + BROKEN, 1, __ATOMIC_RELAXED);
        else __atomic_store_n(mine + WAITS, 0, __ATOMIC_RELAXED); /* of one that failed it stays, and says when */
        if (!e->gather || !e->rank) account(e, begun);
    }
    done(&e->part, 0, 1);
    return 1;
}
