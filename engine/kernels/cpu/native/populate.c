/* Has the system give memory that nobody wrote to yet, on a thread of its own, which takes only time that nobody else
 * wants and knows nothing of Python: whoever holds its lock must not wait for a processor behind everybody else.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define PAGE (2L << 20)
#define POPULATE_WRITE 23 /* madvise's, since Linux 5.14 */

struct populating {
    pthread_t thread;
    atomic_int stopped, thread_id;
    long count;
    long areas[]; /* begin and end of each, on pages of the system's */
};

/* A page of each area in turn: their beginnings are wanted first. */
static void *run(void *of) {
    struct populating *p = of;
#ifdef __linux__
    const struct sched_param none = {0};
    atomic_store(&p->thread_id, (int)syscall(SYS_gettid));
    sched_setscheduler(0, SCHED_IDLE, &none);
#endif
    for (long done = 0, left = 1; left; done += PAGE) {
        left = 0;
        for (long i = 0; i < p->count; i++) {
            const long first = p->areas[2 * i], end = p->areas[2 * i + 1], page = first / PAGE * PAGE + done;
            const long at = page < first ? first : page, next = page + PAGE < end ? page + PAGE : end;
            if (at >= next) continue;
            if (atomic_load(&p->stopped) || madvise((void *)at, next - at, POPULATE_WRITE)) return NULL;
            left = 1;
        }
    }
    return NULL;
}

/* Begins with `count` areas; NULL where it cannot. */
void *begin_populating(const long *areas, long count) {
    struct populating *p = malloc(sizeof *p + 2 * count * sizeof *areas);
    if (!p) return NULL;
    atomic_init(&p->stopped, 0);
    atomic_init(&p->thread_id, 0);
    p->count = count;
    for (long i = 0; i < 2 * count; i++) p->areas[i] = areas[i];
    if (pthread_create(&p->thread, NULL, run, p)) {
        free(p);
        return NULL;
    }
    return p;
}

/* Returns when it has ended: with the last page, or, with `stop`, with the page that it is at. */
void end_populating(void *of, int stop) {
    struct populating *p = of;
    if (stop) {
        atomic_store(&p->stopped, 1);
#ifdef __linux__
        const struct sched_param none = {0};
        if (atomic_load(&p->thread_id)) sched_setscheduler(p->thread_id, SCHED_OTHER, &none); /* it is waited for */
#endif
    }
    pthread_join(p->thread, NULL);
    free(p);
}
