/* The standard requests of chapter 9 (USB 3.2 and 2.0): one configuration, one interface, endpoints 0x02 and
 * 0x81. The handler's.
 *
 * The controller has no register that makes a bulk endpoint answer STALL, so that a halted endpoint does not
 * answer at all (NAK) until its halt is cleared.
 */
#ifndef STANDARD_H
#define STANDARD_H

#include "control.h"

extern const __code struct request standard_requests[];

/* As after a bus reset: not configured, nothing halted, nothing under way. */
void standard_reset(void);

#endif
