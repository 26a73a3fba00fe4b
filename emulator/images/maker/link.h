/* PHY and link: set-up by main, before interrupts are enabled; events by the handler. */
#ifndef LINK_H
#define LINK_H

#include "chip.h"

/* -- main, interrupts disabled --------------------------------------------------------------------------- */

void link_wait_for_phy(void);

/* Registers of unknown meaning that the maker's boot touches: read, and written back as they are. */
void link_touch(void);

/* Set up the controller, and have it look for a partner. */
void link_start(void);

/* -- the handler ----------------------------------------------------------------------------------------- */

void link_event(void);        /* LINK_EVENTS */
void link_reset_event(void);  /* STATUS_9301 */
void link_status_event(void); /* STATUS_9302, STATUS_9300 */

#endif
