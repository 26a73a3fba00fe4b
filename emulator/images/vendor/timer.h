/* Waiting with the chip's timer 0. Not for two callers at once. */
#ifndef TIMER_H
#define TIMER_H

#include "chip.h"

void wait_ms(u8 milliseconds);

#endif
