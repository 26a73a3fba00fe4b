#include "job.h"

#include "pio.h"

volatile u8 abort_generation;
u8 job_generation;

static void (*volatile waiting)(void);
static volatile __bit running;

void job_post(void (*job)(void))
{
    waiting = job;
    if (running)
        abort_generation++;
}

void job_abort(void)
{
    waiting = 0;
    abort_generation++;
}

/* A packet of a stream that has arrived was sent before the request, so it is handled first. */
void job_run(void)
{
    void (*job)(void) = 0;

    HOLD;
    if (!pio_waiting) {
        job = waiting;
        waiting = 0;
        running = job != 0;
        job_begin();
    }
    RELEASE;
    if (job) {
        job();
        running = 0;
    }
}
