/* Power of the slot and the PCIe link. */
#ifndef PCIE_H
#define PCIE_H

#include "chip.h"

/* Receivers, equalisers and TLP routing, once after a reset. */
void pcie_tune(void);
/* Returns whether the link is up; waits for it for 2 s at most. */
u8 pcie_power_on(void);
void pcie_power_off(void);

#endif
