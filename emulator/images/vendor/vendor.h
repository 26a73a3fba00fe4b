/* The requests that hosts of the open firmware use, by its numbers and layouts.
 *
 *  E4 IN   value address, index high DPX bank: that many bytes of MOVX memory
 *  E5 OUT  value address, index low the byte, index high DPX bank: write a byte of MOVX memory
 *  F0 OUT  value low format and type, high byte enables; index low mode; 12 bytes: start TLPs (tlp.h)
 *  F0 IN   8 bytes: the outcome of a single TLP
 *  F2 OUT  value sectors of 512 bytes, bit 15 towards the host; index low first slot, high slots: slot DMA
 *  F3 OUT  value 0 or 1: PCIe power
 */
#ifndef VENDOR_H
#define VENDOR_H

#include "control.h"

extern const __code struct request vendor_requests[];

#endif
