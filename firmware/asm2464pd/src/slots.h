/* The slot DMA: whole sectors between a bulk endpoint and slots of the SRAM, bypassing the CPU. The handler's.
 *
 * It disarms after the last byte and does not report it. Nothing else may use the endpoint before that, and no
 * register ends it early: only a bus reset does.
 */
#ifndef SLOTS_H
#define SLOTS_H

#include "chip.h"

/* Flag in `sectors`, as in the wValue of the request SRAM_DMA. */
#define SLOTS_TO_HOST REQUEST_SRAM_DMA_VALUE_TO_HOST

/* Arm it. Returns 0 if the slots do not exist, or if they do not hold that many sectors (it is unknown what
 * the engine would do), or if a bus reset is pending. Main must not call it once it is given up. */
u8 slots_arm(u8 first, u8 slots, u16 sectors);

#endif
