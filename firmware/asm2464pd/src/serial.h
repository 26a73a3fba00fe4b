/* The serial number: four bytes and their check in the flash chip's one-time programmable page. */
#ifndef SERIAL_H
#define SERIAL_H

#include "chip.h"

enum { SERIAL_BYTES = OTP_SERIAL_CHECK_OFFSET };

/* All ones if the page holds no serial number. */
extern __xdata u8 serial[SERIAL_BYTES];

/* Reads it. Main's, before the USB link is up: the flash's buffer is the bulk OUT endpoint's. */
void serial_read(void);

#endif
