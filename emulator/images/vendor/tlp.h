/* Transaction layer packets one at a time, and streams of them between memory and the bulk endpoints.
 *
 * A stream moves dwords at ascending addresses, a packet of the bulk endpoint at a time. One that meets a
 * time-out, or a packet that is not whole dwords or more of them than are left, ends there: the endpoint is
 * no longer armed, and the host's transfer times out.
 */
#ifndef TLP_H
#define TLP_H

#include "chip.h"

/* Start what EP0_BUFFER and the SETUP of request F0 describe. */
void tlp_start(void);
/* The outcome of a single one, 8 bytes to EP0_BUFFER; waits for it. */
void tlp_result(void);

#endif
