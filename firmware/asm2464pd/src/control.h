/* EP0: a control transfer from SETUP to status, in the phases that the controller reports. The handler's.
 *
 * A request is found by its type, number and length in a table of struct request. Its handler answers with
 * exactly one of control_send, control_accept, control_receive, control_stall and control_leave_open; a request
 * in no table is stalled. A transfer that is left open waits (NAK) until main ends it, in a HOLD, with
 * control_send or control_finish; it may be gone by then: a new SETUP ends the transfer before it.
 */
#ifndef CONTROL_H
#define CONTROL_H

#include "chip.h"

enum { HOST_TO_DEVICE = 0x00, DEVICE_TO_HOST = 0x80 };
enum { STANDARD = 0x00, VENDOR = 0x40 };
enum { DEVICE = 0, INTERFACE = 1, ENDPOINT = 2 };
/* A data stage of any length, but there must be one. */
enum { ANY_LENGTH = 0xFF };

struct setup {
    u8 type;
    u8 request;
    u8 value_low;
    u8 value_high;
    u8 index_low;
    u8 index_high;
    u16 length;
};

struct request {
    u8 type;
    u8 request;
    u8 length;
    void (*handler)(void);
};

/* The request being handled; stays until the next SETUP. */
extern struct setup setup;

/* State after a bus reset: no transfer is under way. */
void control_reset(void);

/* IN: send that many bytes of EP0_BUFFER, or fewer if the host asks for fewer. */
void control_send(u16 length);
/* No data stage: done. */
void control_accept(void);
/* OUT: `arrived` is called with the data in EP0_BUFFER, before the transfer completes. */
void control_receive(void (*arrived)(void));
void control_stall(void);
/* Main will answer, with control_send or control_finish. May be called by `arrived` as well. */
void control_leave_open(void);

/* Main's, in a HOLD: whether the transfer that its job has to end is still open. */
u8 control_is_open(void);
/* Main's, in a HOLD: complete the host's OUT transfer, or one without data. */
void control_finish(void);

void control_event(void);

#endif
