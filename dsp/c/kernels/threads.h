#include "base.h"

/* Work in THREADS parts, by as many threads: compile with -DTHREADS=4 -pthread. They are POSIX threads where there
 * are some, and C11's elsewhere or with -DC11_THREADS. No part writes what another reads or writes, so that the
 * results are the same bits. The threads are started when they are first needed, and wait between two calls, at
 * first awake, until the program ends. One that cannot be started is done without. */
#ifndef THREADS
#define THREADS 1
#endif

typedef void part_of(const void *task, int32_t part);

/* The first of `items` of a part: parts are runs, so that caches share no lines but at their ends. */
static int64_t first_of(int32_t part, int64_t items) { return items * part / THREADS; }

#if THREADS > 1
#include <stdatomic.h>
#if defined(C11_THREADS) || !(defined(__unix__) || defined(__APPLE__))
#include <threads.h>
#define LOCK(m) mtx_lock(m)
#define UNLOCK(m) mtx_unlock(m)
#define WAIT(c, m) cnd_wait(c, m)
#define WAKE(c) cnd_broadcast(c)
#define WORKER int
#define START(t, f, x) (thrd_create(t, f, x) == thrd_success)
typedef mtx_t lock_type;
typedef cnd_t signal_type;
typedef thrd_t thread_type;
#define PREPARE (mtx_init(&crew.lock, mtx_plain), cnd_init(&crew.begun), cnd_init(&crew.done))
#else
#include <pthread.h>
#define LOCK(m) pthread_mutex_lock(m)
#define UNLOCK(m) pthread_mutex_unlock(m)
#define WAIT(c, m) pthread_cond_wait(c, m)
#define WAKE(c) pthread_cond_broadcast(c)
#define WORKER void *
#define START(t, f, x) (pthread_create(t, NULL, f, x) == 0)
typedef pthread_mutex_t lock_type;
typedef pthread_cond_t signal_type;
typedef pthread_t thread_type;
#define PREPARE                                                                \
  (pthread_mutex_init(&crew.lock, NULL), pthread_cond_init(&crew.begun, NULL), \
   pthread_cond_init(&crew.done, NULL))
#endif

static struct {
  lock_type lock;
  signal_type begun, done;
  part_of *work;
  const void *task;
  _Atomic uint32_t round; /* of work, which all that have started take part in */
  int32_t started;        /* threads */
  _Atomic int32_t working;
} crew;

enum { SPINS = 100000 }; /* some tens of microseconds, which is less than it takes to be woken */

static WORKER crew_member(void *given) {
  int32_t part = (int32_t)(intptr_t)given;
  for (uint32_t round = 0;;) {
    for (int32_t k = 0; k < SPINS && atomic_load(&crew.round) == round; k++) continue;
    LOCK(&crew.lock);
    while (crew.round == round) WAIT(&crew.begun, &crew.lock);
    round = crew.round;
    part_of *work = crew.work;
    const void *task = crew.task;
    UNLOCK(&crew.lock);
    work(task, part);
    LOCK(&crew.lock);
    if (!--crew.working) WAKE(&crew.done);
    UNLOCK(&crew.lock);
  }
  return 0;
}

static void in_parts(part_of *work, const void *task) {
  static int prepared;
  if (!prepared) {
    prepared = 1, PREPARE;
    thread_type thread;
    while (crew.started < THREADS - 1 && START(&thread, crew_member, (void *)(intptr_t)(crew.started + 1)))
      crew.started++;
  }
  LOCK(&crew.lock);
  crew.work = work, crew.task = task;
  crew.working = crew.started;
  crew.round++;
  WAKE(&crew.begun);
  UNLOCK(&crew.lock);
  work(task, 0);
  for (int32_t part = crew.started + 1; part < THREADS; part++) work(task, part);
  for (int32_t k = 0; k < SPINS && atomic_load(&crew.working); k++) continue;
  LOCK(&crew.lock);
  while (crew.working) WAIT(&crew.done, &crew.lock);
  UNLOCK(&crew.lock);
}

/* What a node needs while it runs: for part 0 in the arena. */
static void *scratch_of(int32_t part, void *first) {
  static union {
    uint8_t bytes[SCRATCH_BYTES];
    float floats[1];
    double widest;
  } others[THREADS - 1];
  return part ? &others[part - 1] : first;
}
#else
static void in_parts(part_of *work, const void *task) { work(task, 0); }

static void *scratch_of(int32_t part, void *first) {
  (void)part;
  return first;
}
#endif
