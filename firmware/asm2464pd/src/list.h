/* Command lists: receiving them, and answering (the protocol: firmware/protocol/commands.py).
 *
 * The handler opens and closes list mode and records that packets came or went; all else is main's, in
 * list_run. A list is copied out of the bulk buffer packet by packet, and its checksum is summed meanwhile.
 * Once it is complete and valid, execute.h runs it. Results and the trailer are sent by result.h.
 *
 * The OUT endpoint is armed while a list is received, while a list waits for payload, and between lists; a
 * packet that arrives before the last result has been sent waits in the bulk buffer. After a list that was
 * refused or failed, packets are dropped until one begins a list with the expected sequence number: this
 * discards the payload of that list that the host still sends.
 *
 * List mode ends with a bus reset, a cleared endpoint, and any other event that gives up main's work.
 */
#ifndef LIST_H
#define LIST_H

#include "chip.h"

/* What INFO reports of the last list that failed. */
struct list_failure {
    u8 cause;
    u8 opcode;
    u16 index;
    u8 address[8];
};
extern __xdata struct list_failure list_failure;
/* Of the last list that ran. */
extern __xdata u16 list_sequence;

/* The handler's. Opening releases the bulk endpoints and makes list mode their user; `sequence` is that of the
 * first list. Closing releases them if list mode is open. */
void list_open(u16 sequence);
void list_close(void);

/* Main's: receive, run and answer, as far as packets have come. Runs a list to its end. */
void list_run(void);

/* Main's, for payload: arm the endpoint and wait for the packet. Returns 0 if given up. */
u8 list_take_packet(void);

#endif
