/* Work that waits: requested by the interrupt handler, done by main.
 *
 * A request whose work may wait for PCIe posts it as the job, and leaves its transfer open (control.h). Main
 * takes the job when it has finished its current work. An event that makes the work pointless (a bus reset,
 * a cleared endpoint, a newer job) gives it up: main must check GIVEN_UP in every loop that waits, and return
 * without touching endpoints when it is set. bulk.h and control.h have functions for main that check it
 * themselves.
 */
#ifndef JOB_H
#define JOB_H

#include "chip.h"

/* Changes when what main does is given up; the handler's. */
extern volatile u8 abort_generation;
/* Its value when main began its current work. */
extern u8 job_generation;

#define GIVEN_UP (abort_generation != job_generation)

/* The handler's: the job to do next. Gives up the job that runs now, if any. */
void job_post(void (*job)(void));
/* The handler's: give up main's current work, and the job that waits. */
void job_abort(void);

/* Main's: begin something that can be given up. */
#define job_begin() (job_generation = abort_generation)
/* Main's: do the job that waits, if any. */
void job_run(void);

#endif
