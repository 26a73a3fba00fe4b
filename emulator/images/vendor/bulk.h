/* The bulk endpoints, a packet at a time.
 *
 * Whoever uses them says what is to happen when a packet has arrived (bulk_on_out) or has been taken
 * (bulk_on_in), and arms an endpoint for each packet. An endpoint that is not armed answers NAK.
 */
#ifndef BULK_H
#define BULK_H

#include "chip.h"

#define BULK_OUT 0x02
#define BULK_IN 0x81


/* Largest packet at this speed. */
u16 bulk_packet_size(void);

/* Both endpoints cleared, not halted, used by nobody. */
void bulk_stop(void);
void bulk_on_out(void (*handler)(void));
void bulk_on_in(void (*handler)(void));

void bulk_arm_out(void);
void bulk_arm_in(u16 length);
/* Bytes of the packet that has arrived. */
u16 bulk_received(void);

/* A halted endpoint is not armed until its halt is cleared, which ends what it was used for. */
u8 bulk_halted(u8 endpoint);
void bulk_halt(u8 endpoint);
void bulk_clear_halt(u8 endpoint);

void bulk_event(void);

#endif
