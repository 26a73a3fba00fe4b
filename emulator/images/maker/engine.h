/* The mass-storage engine and the bulk endpoints.
 *
 * One command is under way at a time: its wrapper arrives here, main carries it out (transport.c), its status
 * leaves here. A bus reset, a new configuration or a class reset aborts it: main notices at its next wait.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include "chip.h"

/* -- the handler ----------------------------------------------------------------------------------------- */

void engine_start(void);
void engine_command(void);
void engine_bulk_event(void);
void engine_status_sent(void);

/* End what is going on, and the halts with it. */
void engine_abort(void);
/* The class request of that name: as above, but the host clears the halts itself. */
void engine_class_reset(void);

u8 engine_halted(u8 endpoint);
void engine_halt(u8 endpoint);
void engine_clear_halt(u8 endpoint);

/* -- main ------------------------------------------------------------------------------------------------ */

enum { WRAPPER_SIZE = 31 };
extern __xdata u8 wrapper[WRAPPER_SIZE];

/* Wait for a packet where a command is due; it is in `wrapper`. 1: it has the size of one, 2: it has not,
 * 0: it has been aborted already. */
u8 engine_wait(void);

/* Each returns 0 if the command has been aborted. */
u8 engine_send(u16 length);       /* bytes of IN_BUFFER, one packet */
u8 engine_receive(void);          /* a packet to OUT_BUFFER */
u8 engine_stall_in(void);         /* halts EP 0x81, and waits until the host has cleared it */
u8 engine_send_status(void);      /* the wrapper in STATUS_BUFFER; waits until the host has it */

void engine_stall_out(void);
/* After a wrong wrapper: both endpoints stay halted until the class reset. */
void engine_demand_reset(void);

u16 engine_received(void); /* bytes of the last packet */
u16 engine_packet_size(void);

#endif
