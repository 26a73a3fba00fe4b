/* The maker's commands, with the chip they work on. Main's.
 *
 *   E0 block                    read a configuration block
 *   E1 50 block                 write one
 *   E2 part, length (4 bytes)   read flash: part 50 from 0x100, part D0 from 0x10000
 *   E3 part, length             write it
 *   E4 count, address (3)       read XDATA; the address has 0x500000 set, and in bit 16 the plane
 *   E5 value, address           write a byte of XDATA
 *   E8 kind                     restart: 00 the CPU, 01 softly, 51 after a new image
 */
#ifndef VENDOR_H
#define VENDOR_H

#include "chip.h"

/* As those of scsi.h, which calls them. */
void vendor_idle(void);
u8 vendor_begin(__xdata u8 *cdb);
void vendor_fill(u16 length);
u8 vendor_drain(u16 length);
void vendor_afterwards(void);

#endif
