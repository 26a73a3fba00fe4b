/* Types, and MOVX memory by number; registers, fields and requests come from the generated header.
 *
 * There are two threads of execution. The interrupt handler (usb.h) does what takes a few microseconds, and
 * never waits; main (main.c) does what waits. No function is reentrant (sdcc keeps locals at fixed addresses),
 * so each belongs to one of them: its header says to which. HOLD blocks the handler, so that main may call the
 * handler's functions; holds are short, and do not nest.
 */
#ifndef CHIP_H
#define CHIP_H

#include "asm2464pd.h"

typedef unsigned char u8;
typedef unsigned int u16;
typedef unsigned long u32;

#define XDATA(address) ((volatile __xdata u8 *)(address))
#define HIGH(word) ((u8)((word) >> 8))
#define LOW(word) ((u8)(word))

#define HOLD (CPU_IE_EX0_BIT = 0)
#define RELEASE (CPU_IE_EX0_BIT = 1)

#endif
