/* The vendor requests; numbers and layouts are those of firmware/protocol/requests.py. The handler's.
 *
 *  E4 IN   value address, index high DPX plane: that many bytes of MOVX memory
 *  E5 OUT  value address, index low the byte, index high DPX plane: write a byte of MOVX memory
 *  F0 OUT  value low format and type, high byte enables; index low mode; 12 bytes: start TLPs (pio.h)
 *  F0 IN   8 bytes: the outcome of a single TLP
 *  F2 OUT  value sectors of 512 bytes, bit 15 towards the host; index low first slot, high slots: slot DMA
 *  F3 OUT  value 0 or 1: PCIe power
 *  C0 IN   5 bytes: the dock's supply (supply.h)
 *  F8 OUT  value 1 open, 0 close; index sequence number: list mode (list.h)
 *  F9 IN   32 bytes: INFO
 *
 * Hosts of the open firmware use E4 to F3 and C0; F8 and F9 are ours.
 */
#ifndef VENDOR_H
#define VENDOR_H

#include "control.h"

extern const __code struct request vendor_requests[];

#endif
