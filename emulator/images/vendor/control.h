/* EP0: a control transfer from SETUP to status, in the phases that the controller reports.
 *
 * A request is found by its type and number in the table of its kind, and its handler answers with exactly
 * one of control_send, control_accept, control_receive and control_stall. What no table has is stalled.
 * A new SETUP ends whatever the last one began.
 */
#ifndef CONTROL_H
#define CONTROL_H

#include "chip.h"


enum { HOST_TO_DEVICE = 0x00, DEVICE_TO_HOST = 0x80 };
enum { STANDARD = 0x00, VENDOR = 0x40 };
enum { DEVICE = 0, INTERFACE = 1, ENDPOINT = 2 };

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
    void (*handler)(void);
};

/* The request being handled; stays until the next SETUP. */
extern struct setup setup;

/* IN: send that many bytes of EP0_BUFFER, or as many as the host wants. */
void control_send(u16 length);
/* No data stage: done. */
void control_accept(void);
/* OUT: `arrived` is called with the data in EP0_BUFFER, before the transfer completes. */
void control_receive(void (*arrived)(void));
void control_stall(void);

void control_event(void);

#endif
