/* Timer 0. Main's. */
#ifndef TIMER_H
#define TIMER_H

#include "chip.h"

/* Ticks are half a millisecond: mode 4. */
void timer_start(u16 ticks);
u8 timer_expired(void);

#endif
