/* Has the system give memory that nobody wrote to yet, on a thread that knows nothing of Python: whoever holds its lock
 * must not wait for a processor behind everybody else.
 *
 * It takes only time that nobody else wants, of which another thread tells, which gets no other. That one must not
 * populate itself: while a page is given nobody in the process can map memory or start a thread, and one that is made to
 * wait in the midst of it would make all others wait. So the two pass a page's turn to and fro.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define PAGE (2L << 20)
#define POPULATE_WRITE 23 /* madvise's, since Linux 5.14 */

struct populating {
    pthread_t thread;
    sem_t asked, idle;               /* for a moment that nobody wants; there is one */
    atomic_int stopped, hurried;     /* hurried: somebody waits for the last page, so it asks no more */
    atomic_int holders;              /* the last one frees */
    long count;
    long areas[]; /* begin and end of each, on pages of the system's */
};

static void leave(struct populating *p) {
    if (atomic_fetch_sub(&p->holders, 1) > 1) return;
    sem_destroy(&p->asked);
    sem_destroy(&p->idle);
    free(p);
}

static void await(sem_t *one) {
    while (sem_wait(one)) continue; /* a signal came */
}

static void *tell(void *of) {
    struct populating *p = of;
    const struct sched_param none = {0};
    if (sched_setscheduler(0, SCHED_IDLE, &none)) atomic_store(&p->hurried, 1);
    for (await(&p->asked); !atomic_load(&p->stopped); await(&p->asked)) sem_post(&p->idle);
    leave(p);
    return NULL;
}

/* One page; 0 where that was the end of it. */
static int populate(struct populating *p, long at, long next) {
    if (!atomic_load(&p->hurried)) {
        sem_post(&p->asked);
        await(&p->idle);
    }
    return !atomic_load(&p->stopped) && !madvise((void *)at, next - at, POPULATE_WRITE);
}

/* A page of each area in turn: their beginnings are wanted first. */
static void *run(void *of) {
    struct populating *p = of;
    for (long done = 0, left = 1; left; done += PAGE) {
        left = 0;
        for (long i = 0; i < p->count; i++) {
            const long first = p->areas[2 * i], end = p->areas[2 * i + 1], page = first / PAGE * PAGE + done;
            const long at = page < first ? first : page, next = page + PAGE < end ? page + PAGE : end;
            if (at >= next) continue;
            if (!populate(p, at, next)) goto over;
            left = 1;
        }
    }
over:
    atomic_store(&p->stopped, 1);
    sem_post(&p->asked);
    leave(p);
    return NULL;
}

/* Begins with `count` areas; NULL where it cannot. */
void *begin_populating(const long *areas, long count) {
    struct populating *p = malloc(sizeof *p + 2 * count * sizeof *areas);
    if (!p) return NULL;
    atomic_init(&p->stopped, 0);
    atomic_init(&p->hurried, 0);
    atomic_init(&p->holders, 3);
    sem_init(&p->asked, 0, 0);
    sem_init(&p->idle, 0, 0);
    p->count = count;
    for (long i = 0; i < 2 * count; i++) p->areas[i] = areas[i];
    pthread_t teller;
    if (pthread_create(&teller, NULL, tell, p)) {
        atomic_store(&p->holders, 1);
        leave(p);
        return NULL;
    }
    pthread_detach(teller);
    if (pthread_create(&p->thread, NULL, run, p)) {
        atomic_store(&p->stopped, 1);
        atomic_fetch_sub(&p->holders, 1);
        sem_post(&p->asked);
        leave(p);
        return NULL;
    }
    return p;
}

/* Returns when it has ended: with the last page, or, with `stop`, with the page that it is at. */
void end_populating(void *of, int stop) {
    struct populating *p = of;
    atomic_store(stop ? &p->stopped : &p->hurried, 1);
    sem_post(&p->idle);
    pthread_join(p->thread, NULL);
    leave(p);
}
#else
void *begin_populating(const long *areas, long count) {
    (void)areas, (void)count;
    return NULL;
}

void end_populating(void *of, int stop) {
    (void)of, (void)stop;
}
#endif
