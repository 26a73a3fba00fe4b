/* Numbers of several bytes in XDATA, least significant byte first: sdcc makes much more code of them. */
#ifndef BYTES_H
#define BYTES_H

#include "chip.h"

u16 load16(volatile __xdata u8 *at);
u32 load32(volatile __xdata u8 *at);
/* Of a register whose most significant byte comes first. */
u16 load16_reversed(volatile __xdata u8 *at);
/* The dword there += the one behind it. */
void add32(volatile __xdata u8 *at);
void copy_bytes(volatile __xdata u8 *to, volatile __xdata u8 *from, u8 count);

#endif
