/* Waiting for another process, at a word of shared memory that grows: its lower half is a futex. Beside it a second word
 * counts who sleeps, so that nobody is woken where nobody does.
 */
#include <limits.h>
#include <sched.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static inline long now(void) { /* nanoseconds */
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

static inline void spin_once(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#endif
}

/* While the word is `seen`, for so many nanoseconds at most: where ranks share a processor, who waits must not keep it. */
static inline void sleep_while(long *word, long *sleepers, long seen, long most) {
#ifdef __linux__
    struct timespec glance = {0, most};
    __atomic_fetch_add(sleepers, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, (int *)word, FUTEX_WAIT, (int)seen, &glance, NULL, 0);
    __atomic_fetch_sub(sleepers, 1, __ATOMIC_SEQ_CST);
#else
    sched_yield();
#endif
}

/* What was written before is seen by whoever sees the value. */
static inline void publish(long *word, long *sleepers, long value) {
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
#ifdef __linux__
    if (__atomic_load_n(sleepers, __ATOMIC_SEQ_CST)) syscall(SYS_futex, (int *)word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#endif
}
