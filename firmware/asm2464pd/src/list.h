/* Command lists: receiving them, and answering (the protocol: firmware/protocol/commands.py).
 *
 * The handler opens and closes list mode and notes that packets came or went; all else is main's, in
 * list_run. A list is copied out of the bulk buffer packet by packet, with its checksum summed on the way,
 * and run by execute.h once it is whole and right. Results and the trailer leave through result.h.
 *
 * The OUT endpoint is armed while a list is received, while a list waits for payload, and between lists; a
 * packet that arrives before the last result has gone waits in the bulk buffer. After a list that was
 * refused or failed, packets are dropped until one begins a list with the expected sequence number: what the
 * host still sends of that list's payload runs into nothing.
 *
 * List mode ends with a bus reset, with a cleared endpoint, and with whatever else gives main's work up.
 */
#ifndef LIST_H
#define LIST_H

#include "chip.h"

/* What INFO tells of the last list that failed. */
struct list_failure {
    u8 cause;
    u8 opcode;
    u16 index;
    u8 address[8];
};
extern __xdata struct list_failure list_failure;
/* Of the last list that ran. */
extern __xdata u16 list_sequence;

/* The handler's. Opening makes list mode the user of the bulk endpoints, which are released before; `sequence`
 * is that of the first list. Closing releases them, if list mode is open. */
void list_open(u16 sequence);
void list_close(void);

/* Main's: receive, run and answer, as far as packets go. Runs a list to its end. */
void list_run(void);

/* Main's, for payload: the endpoint armed, and the packet waited for; 0 if given up. */
u8 list_take_packet(void);

#endif
