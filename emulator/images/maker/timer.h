/* Timer 0. Main's. */
#ifndef TIMER_H
#define TIMER_H

#include "chip.h"

/* The tick of mode 4 is half a millisecond; each mode doubles that of the one before. */
enum { HALF_MILLISECOND = 4 };
void timer_start(u8 mode, u16 ticks);
u8 timer_expired(void);
void timer_sleep(u8 mode, u16 ticks);

#endif
