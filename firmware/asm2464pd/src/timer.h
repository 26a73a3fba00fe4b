/* Time, by the chip's timers, whose tick is half a millisecond. Main's, but for uptime.
 *
 * Timer 0 is for waiting and for the deadline (so never wait while a deadline is set), timer 2 counts the
 * time since the start.
 */
#ifndef TIMER_H
#define TIMER_H

#include "chip.h"

/* Milliseconds since timer_start, as of main's last timer_poll. */
extern __idata u32 uptime;

void timer_start(void);
/* Update uptime, and go on with what supply.h measures: call it every few milliseconds. The functions below do. */
void timer_poll(void);

/* The deadline is never over early; late by at most a millisecond, and 2 %. */
void deadline_set(u32 microseconds);
u8 deadline_over(void);

/* At least that long. Half a millisecond and more end as a deadline does, or early if given up (job.h). */
void wait_us(u32 microseconds);

#endif
