/* Work that waits: asked for by the interrupt handler, done by main.
 *
 * A request whose work may wait for PCIe posts it as the job, and leaves its transfer open (control.h). Main
 * takes the job as soon as it is done with what it is at. Whatever takes the work's purpose away (a bus
 * reset, a cleared endpoint, a newer job) gives it up: main must look at GIVEN_UP in every loop that waits,
 * and then return without touching endpoints. bulk.h and control.h have functions for main that check it
 * themselves.
 */
#ifndef JOB_H
#define JOB_H

#include "chip.h"

/* Changes when what main does is given up; the handler's. */
extern volatile u8 abort_generation;
/* What that was when main began what it is doing. */
extern u8 job_generation;

#define GIVEN_UP (abort_generation != job_generation)

/* The handler's: the job to do next. Gives up the job that runs now, if one does. */
void job_post(void (*job)(void));
/* The handler's: give up whatever main does, and the job that waits. */
void job_abort(void);

/* Main's: begin something that can be given up. */
void job_begin(void);
/* Main's: do the job that waits, if there is one. */
void job_run(void);

#endif
