/* Power of the slot and the PCIe link. Main's, but for links_lost. */
#ifndef PCIE_H
#define PCIE_H

#include "chip.h"

/* How often the link went down when it should be up. */
extern __idata u16 links_lost;

/* Receivers, equalisers and TLP routing, once after a reset. */
void pcie_tune(void);
/* Waits at most 2 s for the link, or until the wait is given up (job.h). Returns whether it is up. */
u8 pcie_power_on(void);
void pcie_power_off(void);
/* Check whether the link is still up. */
void pcie_watch(void);

#endif
