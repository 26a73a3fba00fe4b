/* Request F0: single TLPs, and streams of dwords between PCIe and the bulk endpoints.
 *
 * The request's data stage is a TLP_REQUEST. The handler posts a job and leaves the transfer open; main
 * loads the engine, launches, and then ends the transfer: a host that sees it end knows the request is on
 * its way, and one that gave it up before that gets nothing launched. The answer to the same request towards
 * the host waits for the completion.
 *
 * A stream moves dwords of memory at ascending addresses, a packet of the bulk endpoint at a time. A packet
 * towards the device that is not whole dwords, or more of them than are left, ends the stream: the endpoint
 * is no longer armed. A read that is not completed well ends it too: what has been read goes to the host as
 * a short packet.
 */
#ifndef PIO_H
#define PIO_H

#include "chip.h"

/* Main has something to do for a stream. */
extern volatile __bit pio_waiting;

/* The handler's: the two requests, after which main does the rest. */
void pio_request(void);
void pio_status(void);

/* Main's: handle the packet that has arrived, or prepare the next one. */
void pio_run(void);

#endif
