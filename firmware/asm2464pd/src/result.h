/* Results on their way to the host. Main's, but for result_taken.
 *
 * They are put where the endpoint sends them from, at block_place in BULK_IN_BUFFER. As soon as a packet is
 * full and the last one has been taken it is sent; meanwhile there is room for more behind it, which moves to
 * the buffer's start afterwards. So a host that reads along gets results of any length, and one that reads
 * only at the end may get as much as the buffer holds without being waited for.
 */
#ifndef RESULT_H
#define RESULT_H

#include "chip.h"

/* Set by the handler when the host has taken a packet. */
extern volatile __bit result_taken;

/* Forget everything. */
void result_start(void);
/* Wait until there is room at block_place for a dword; says for how many more there is as well. Without a
 * host that reads this ends only when it is given up (job.h): there is room for one dword then. */
u8 result_room(void);
/* Nothing more comes: send the rest, ended by a short packet. The trailer needs no room to be asked for. */
void result_end(void);
/* Send what can be sent. */
void result_poll(void);
/* Whether the host has taken all of the last result. */
u8 result_is_gone(void);

#endif
