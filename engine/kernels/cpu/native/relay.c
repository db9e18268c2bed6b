/* Waiting for a message of another process: a word in shared memory that grows, and beside it how many sleep on it. */
#include "common.h"
#include "waiting.h"

#define SPINS 4000       /* some 0.1 ms */
#define GLANCE 20000000L /* nanoseconds between looks at whether a rank gave up */

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
 * or left its step. */
int await_word(long *word, long least, const struct lanes *of, long patience) {
    const long until = now() + patience;
    long seen;
    for (long spins = 0; (seen = __atomic_load_n(word, __ATOMIC_ACQUIRE)) < least; spins++) {
        if (spins < SPINS) {
            spin_once();
            continue;
        }
        sleep_while(word, word + 1, seen, GLANCE);
        if (given_up(of) || now() > until) return 0;
    }
    return 1;
}

int publish_word(long *word, long value) {
    publish(word, word + 1, value);
    return 0;
}
