/* The USB controller: bring-up, link events, and the interrupt handler.
 *
 * SuperSpeed is tried first. The controller reports its failure as an event; only that event shows that the
 * link is a USB 2.0 one from then on.
 *
 * Every part of the handler is a short step: it waits only for the controller's own registers, and those
 * waits have a bound.
 */
#ifndef USB_H
#define USB_H

#include "chip.h"

/* The link is a USB 2.0 one. */
extern __bit usb_high_speed;

void usb_start(void);
/* For a USB 2.0 link: the port has full speed only. For main and the handler. */
u8 usb_is_full_speed(void);
void usb_interrupt(void) __interrupt(0);

#endif
