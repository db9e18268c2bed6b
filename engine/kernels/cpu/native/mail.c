/* Rank 0's word that there is something to read, for the other ranks of a split model. */
#include <limits.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define AWAKE 700000L     /* nanoseconds: longer than rank 0 is between two steps */
#define GLANCE 100000000L /* nanoseconds */

enum { POSTED, SLEEPERS }; /* words; the lower half of the first is the futex */

static long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

/* What was written before it is seen by whoever sees the n. */
int post_mail(long *words, long n) {
    __atomic_store_n(words + POSTED, n, __ATOMIC_SEQ_CST);
#ifdef __linux__
    if (__atomic_load_n(words + SLEEPERS, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, (int *)(words + POSTED), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#endif
    return 0;
}

/* Returns once the n-th was posted. Whoever wakes up late has all ranks wait, and may be put on the processor of the one
 * that woke it: so between two steps it stays awake. It does not yield: Linux would then let all others go first. */
int await_mail(long *words, long n) {
    const long until = now() + AWAKE;
    for (long turns = 1; __atomic_load_n(words + POSTED, __ATOMIC_ACQUIRE) < n; turns++) {
        if (turns % 64 || now() < until) {
#if defined __x86_64__
            __builtin_ia32_pause();
#endif
            continue;
        }
#ifdef __linux__
        struct timespec glance = {0, GLANCE};
        __atomic_fetch_add(words + SLEEPERS, 1, __ATOMIC_SEQ_CST);
        const long seen = __atomic_load_n(words + POSTED, __ATOMIC_SEQ_CST);
        if (seen < n) syscall(SYS_futex, (int *)(words + POSTED), FUTEX_WAIT, (int)seen, &glance, NULL, 0);
        __atomic_fetch_sub(words + SLEEPERS, 1, __ATOMIC_SEQ_CST);
#endif
    }
    return 0;
}
