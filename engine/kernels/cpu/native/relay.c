/* Waiting for a message of another process: a word in shared memory that grows, and beside it how many sleep on it. */
#include "common.h"
#include <limits.h>
#include <sched.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define SPINS 4000       /* some 0.1 ms */
#define GLANCE 20000000L /* nanoseconds between looks at whether a rank gave up */

static long monotonic(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

/* As `exchange.c` has the words of the lanes of all ranks. */
enum { BROKEN = 5, STOPPED = 7 };

struct lanes {
    const char *first;
    long ranks, bytes; /* of each */
};

static int given_up(const struct lanes *of) {
    for (long rank = 0; rank < of->ranks; rank++) {
        const long *words = (const long *)(of->first + rank * of->bytes);
        if (__atomic_load_n(words + BROKEN, __ATOMIC_RELAXED) || __atomic_load_n(words + STOPPED, __ATOMIC_RELAXED)) return 1;
    }
    return 0;
}

/* Until `word[0]` is `least` or more. Gives 0 where that does not come within `patience` nanoseconds, or a rank gave up
 * or left its step. The lower half of the word is the futex. */
int await_word(long *word, long least, const struct lanes *of, long patience) {
    const long until = monotonic() + patience;
    long seen;
    for (long spins = 0; (seen = __atomic_load_n(word, __ATOMIC_ACQUIRE)) < least; spins++) {
        if (spins < SPINS) {
#if defined __x86_64__
            __builtin_ia32_pause();
#endif
            continue;
        }
#ifdef __linux__
        struct timespec glance = {0, GLANCE};
        __atomic_fetch_add(word + 1, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, (int *)word, FUTEX_WAIT, (int)seen, &glance, NULL, 0);
        __atomic_fetch_sub(word + 1, 1, __ATOMIC_SEQ_CST);
#else
        sched_yield();
#endif
        if (given_up(of) || monotonic() > until) return 0;
    }
    return 1;
}

int publish_word(long *word, long value) {
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
#ifdef __linux__
    if (__atomic_load_n(word + 1, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, (int *)word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#endif
    return 0;
}
