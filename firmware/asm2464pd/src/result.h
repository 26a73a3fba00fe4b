/* Sending results to the host. Main's, but for result_taken.
 *
 * They are written to the buffer that the endpoint sends from, at block_place in BULK_IN_BUFFER. A packet is
 * sent as soon as it is full and the host has taken the one before. Meanwhile there is room for more behind
 * it, which moves to the buffer's start afterwards. So a host that reads while a list runs gets results of any
 * length; for one that reads only at the end, the list does not wait while the results fit the buffer.
 */
#ifndef RESULT_H
#define RESULT_H

#include "chip.h"

/* Set by the handler when the host has taken a packet. */
extern volatile __bit result_taken;

/* Discard all results. */
void result_start(void);
/* Wait until there is room at block_place for a dword. Returns for how many more there is room. If the host
 * does not read, this ends only when it is given up (job.h): there is room for one dword then. */
u8 result_room(void);
/* The result is complete: send the rest, ended by a short packet. The trailer always has room. */
void result_end(void);
/* Send the packets that can be sent now. */
void result_poll(void);
/* Whether the host has taken all of the last result. */
u8 result_is_gone(void);

#endif
