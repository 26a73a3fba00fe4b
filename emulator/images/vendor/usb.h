/* The USB controller: bring-up, link events, and the interrupt that everything else runs in.
 *
 * SuperSpeed is tried first. The controller reports its failure as an event; only that event tells that the
 * link is High Speed from then on.
 */
#ifndef USB_H
#define USB_H

#include "chip.h"

extern u8 usb_high_speed;

void usb_start(void);
void usb_interrupt(void) __interrupt(0);

#endif
