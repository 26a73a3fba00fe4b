/* The bulk endpoints, a packet at a time. The handler's, but for bulk_continue_*.
 *
 * Their user sets callbacks for a packet that has arrived (bulk_on_out), for one that the host has taken
 * (bulk_on_in) and for being stopped (bulk_on_stop), and arms an endpoint for each packet. An endpoint that is
 * not armed answers NAK. Stopping an endpoint stops its user, which gets no more packets, and gives up what
 * main does.
 */
#ifndef BULK_H
#define BULK_H

#include "chip.h"

#define BULK_OUT 0x02
#define BULK_IN 0x81

/* Largest packet at this speed; for main and the handler. */
u16 bulk_packet_size(void);

/* The endpoints have no user any more, and none is armed. An idle one is left alone: clearing it may
 * restart its packet sequence, and the host would not restart its own. */
void bulk_disarm(void);
/* The same, with the user stopped and main's work given up. */
void bulk_release(void);
/* The same, with both endpoints cleared and no longer halted. */
void bulk_stop(void);
void bulk_on_out(void (*handler)(void));
void bulk_on_in(void (*handler)(void));
void bulk_on_stop(void (*handler)(void));

void bulk_arm_out(void);
void bulk_arm_in(u16 length);
/* Bytes of the packet that has arrived; for main and the handler. */
u16 bulk_received(void);

/* Main's: arm an endpoint, unless what main does has been given up. BULK_IN_BUFFER holds the packet; it must
 * not be written before the last one has been taken. */
void bulk_continue_out(void);
void bulk_continue_in(u16 length);

/* A halted endpoint is not armed until its halt is cleared, which ends its current use. */
u8 bulk_halted(u8 endpoint);
void bulk_halt(u8 endpoint);
void bulk_clear_halt(u8 endpoint);

void bulk_event(void);

#endif
