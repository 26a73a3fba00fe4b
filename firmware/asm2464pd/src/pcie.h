/* Power of the slot and the PCIe link. Main's, but for links_lost. */
#ifndef PCIE_H
#define PCIE_H

#include "chip.h"

/* How often the link went down while it should be up. */
extern __idata u16 links_lost;

/* Receivers, equalisers and TLP routing, once after a reset. */
void pcie_tune(void);
/* Returns whether the link is up; waits for it for 2 s at most, or until that is given up (job.h). */
u8 pcie_power_on(void);
void pcie_power_off(void);
/* Look whether the link is still up. */
void pcie_watch(void);

#endif
