/* The standard requests of chapter 9 (USB 3.2 and 2.0): one configuration, one interface, endpoints 0x02 and
 * 0x81. The handler's.
 *
 * No register is known that makes a bulk endpoint answer STALL, so a halted endpoint answers NAK until its
 * halt is cleared.
 */
#ifndef STANDARD_H
#define STANDARD_H

#include "control.h"

extern const __code struct request standard_requests[];

/* State after a bus reset: not configured, nothing halted, nothing under way. */
void standard_reset(void);

#endif
