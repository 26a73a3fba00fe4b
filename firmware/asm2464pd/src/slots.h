/* The slot DMA: whole sectors between a bulk endpoint and slots of the SRAM, past the CPU. The handler's.
 *
 * It disarms after the last byte and tells nobody. Nothing else may use the endpoint before that, and no
 * register ends it early: only a bus reset does.
 */
#ifndef SLOTS_H
#define SLOTS_H

#include "chip.h"

/* Of `sectors`, as in the wValue of the request SRAM_DMA. */
#define SLOTS_TO_HOST REQUEST_SRAM_DMA_VALUE_TO_HOST

/* Arm it. Returns 0 if there are no such slots, or if they do not hold so many sectors (nobody knows what the
 * engine would do), or if a bus reset waits to be handled. Main must not call it once it is given up. */
u8 slots_arm(u8 first, u8 slots, u16 sectors);

#endif
