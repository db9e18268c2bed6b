/* Rank 0's word that there is something to read, for the other ranks of a split model. */
#include "waiting.h"

#define AWAKE 700000L     /* nanoseconds: longer than rank 0 is between two steps */
#define GLANCE 100000000L /* nanoseconds */

enum { POSTED, SLEEPERS }; /* words */

int post_mail(long *words, long n) {
    publish(words + POSTED, words + SLEEPERS, n);
    return 0;
}

/* Returns once the n-th was posted. Whoever wakes up late has all ranks wait, and may be put on the processor of the one
 * that woke it: so between two steps it stays awake. It does not yield: Linux would then let all others go first. */
int await_mail(long *words, long n) {
    const long until = now() + AWAKE;
    long seen;
    for (long turns = 1; (seen = __atomic_load_n(words + POSTED, __ATOMIC_ACQUIRE)) < n; turns++) {
        if (turns % 64 || now() < until) spin_once();
        else sleep_while(words + POSTED, words + SLEEPERS, seen, GLANCE);
    }
    return 0;
}
