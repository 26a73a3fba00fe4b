/* Numbers of several bytes in XDATA, least significant byte first: sdcc needs much more code for them. */
#ifndef BYTES_H
#define BYTES_H

#include "chip.h"

u16 load16(volatile __xdata u8 *at);
u32 load32(volatile __xdata u8 *at);
/* For a register whose most significant byte comes first. */
u16 load16_reversed(volatile __xdata u8 *at);
/* Add the following dword to the one at that address. */
void add32(volatile __xdata u8 *at);
void copy_bytes(volatile __xdata u8 *to, volatile __xdata u8 *from, u8 count);

#endif
