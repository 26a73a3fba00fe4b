/* The commands: what every disk is asked, here without a medium, and the maker's own (vendor.h). Main's. */
#ifndef SCSI_H
#define SCSI_H

#include "chip.h"

/* Of a command. */
enum { PASSED = 0, FAILED = 1, PHASE_ERROR = 2 };

enum { NO_DATA = 0, FOR_HOST = 1, FROM_HOST = 2 };
extern __xdata u8 scsi_direction; /* of the command's data */
extern __xdata u32 scsi_amount;   /* its bytes */

/* Begin a command: what needs no data of the host's is done at once. Returns 0 if it fails; then there is no
 * data, and REQUEST SENSE will say why. */
u8 scsi_begin(__xdata u8 *cdb, u8 length);

/* Put the next bytes for the host into IN_BUFFER, a packet at most. */
void scsi_fill(u16 length);

/* Take bytes of the host's out of OUT_BUFFER; 0 if that fails. */
u8 scsi_drain(u16 length);

/* The host has the status. */
void scsi_afterwards(void);

/* Why a command fails; returns 0. */
u8 scsi_fail(u8 key, u8 code);
enum { NOT_READY = 2, MEDIUM_ERROR = 3, ILLEGAL_REQUEST = 5 };
enum { WRITE_FAULT = 0x03, NO_SUCH_COMMAND = 0x20, WRONG_FIELD = 0x24, WRONG_PARAMETER = 0x26 };
enum { NO_MEDIUM = 0x3A };

#endif
