/* Request F0: single TLPs, and streams of dwords between PCIe and the bulk endpoints.
 *
 * The request's data stage is a TLP_REQUEST. The handler posts a job and leaves the transfer open; main
 * loads the engine, launches, and then ends the transfer. When a host sees it end, the request has been
 * sent; if the host gave it up before, nothing is launched. The answer to the same request towards the host
 * waits for the completion.
 *
 * A stream moves dwords of memory at ascending addresses, a packet of the bulk endpoint at a time. A packet
 * towards the device that is not whole dwords, or has more of them than are left, ends the stream: the endpoint
 * is no longer armed. A read that is not completed successfully ends it too: the dwords before it go to the
 * host as a short packet.
 */
#ifndef PIO_H
#define PIO_H

#include "chip.h"

/* Main has work to do for a stream. */
extern volatile __bit pio_waiting;

/* The handler's: the two requests, after which main does the rest. */
void pio_request(void);
void pio_status(void);

/* Main's: handle the packet that has arrived, or prepare the next one. */
void pio_run(void);

#endif
