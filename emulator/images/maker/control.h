/* EP0: the phases of a control transfer. The handler's, but control_reset before interrupts are enabled. */
#ifndef CONTROL_H
#define CONTROL_H

#include "chip.h"

/* The SETUP packet that is being answered. */
struct setup {
    u8 type;
    u8 request;
    u8 value_low, value_high;
    u8 index_low, index_high;
    u8 length_low, length_high;
};
extern __xdata struct setup setup;

/* No transfer, no configuration. */
void control_reset(void);

void control_event(void); /* EP0_PHASE */

/* A request is answered by one of these. */
void control_send(u8 length); /* bytes of EP0_BUFFER, at most what the host wants */
void control_accept(void);    /* what the host sends, or nothing */
void control_stall(void);

#endif
