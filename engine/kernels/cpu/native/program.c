/* Runs one part, or the parts of a whole step one after the other, on the OpenMP team that torch itself uses: a second
 * team would wait for the first one's threads, which spin for a while after their work.
 */
#include "common.h"
#include <sched.h>
#include <time.h>

extern void GOMP_parallel(void (*work)(void *), void *of, unsigned threads, unsigned flags);

#define SPINS 4000 /* some 0.1 ms: longer than what the other threads still have to do, where each has a core */

typedef long (*Work)(void *part);
typedef void (*Meanwhile)(void);

/* One part alone. Gives 0, or 1 where it failed. */
int run_part(Work work, struct part *part, int threads) {
    part->next = part->done = part->failed = 0;
    if (threads > 1) GOMP_parallel((void (*)(void *))work, part, threads, 0); else work(part);
    return part->failed;
}

struct call {
    Work work;
    struct part *part;
    long each;         /* of its rows for every token of the step, */
    long counted;      /* or for every one that is kept, or that is this rank's */
    long kind;         /* to which of the program's times its own belongs */
    long ended;        /* nanoseconds */
};

enum { TOKENS, KEPT, SHARE };

struct program {
    struct call *calls;
    long *spent; /* nanoseconds by kind, to which those of a run are added */
    long count, tokens, kept, rank, ranks, begun;
    int threads;
    Meanwhile meanwhile; /* what the calling thread does before it joins the others, or NULL */
};

/* The time, where nobody noted it before: of a call, when the first thread finds it done, which is when the next one
 * begins. */
static void note(long *when) {
    struct timespec at;
    long never = 0;
    if (__atomic_load_n(when, __ATOMIC_RELAXED)) return;
    clock_gettime(CLOCK_MONOTONIC, &at);
    __atomic_compare_exchange_n(when, &never, at.tv_sec * 1000000000L + at.tv_nsec, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Waits until all of a part is done, by whoever took it. A thread that has nothing of it is not waited for: it may come
 * late, find the part done, and go on to where the others are. */
static void wait_for(const struct part *part, long things) {
    for (long spins = 0; __atomic_load_n(&part->done, __ATOMIC_ACQUIRE) < things; spins++) {
#if defined __x86_64__
        __builtin_ia32_pause();
#endif
        if (spins > SPINS) sched_yield();
    }
}

static void run_calls(void *of) {
    struct program *p = of;
    const int many = omp_get_num_threads() > 1;
    if (p->meanwhile && !omp_get_thread_num()) p->meanwhile();
    note(&p->begun);
    for (long i = 0; i < p->count; i++) {
        struct call *call = p->calls + i;
        const long things = call->work(call->part);
        if (call->part->failed) break;
        if (many) wait_for(call->part, things);
        note(&call->ended);
    }
}

/* The whole step; where no token is kept, what is done to those that are is left out. Gives 0, or 1 where a part failed. */
int run_program(struct program *p) {
    const long share = p->tokens * (p->rank + 1) / p->ranks - p->tokens * p->rank / p->ranks;
    for (long i = 0; i < p->count; i++) {
        struct call *call = p->calls + i;
        call->ended = 0;
        call->part->rows = call->each * (call->counted == KEPT ? p->kept : call->counted == SHARE ? share : p->tokens);
        call->part->next = call->part->done = call->part->failed = 0;
    }
    p->begun = 0;
    if (p->threads > 1) GOMP_parallel(run_calls, p, p->threads, 0); else run_calls(p);
    for (long i = 0, last = p->begun; i < p->count; i++) {
        if (p->calls[i].part->failed) return 1;
        p->spent[p->calls[i].kind] += p->calls[i].ended - last;
        last = p->calls[i].ended;
    }
    return 0;
}
