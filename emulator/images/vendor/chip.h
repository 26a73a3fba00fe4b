/* Types, and MOVX memory by number; registers and fields come from the generated header. */
#ifndef CHIP_H
#define CHIP_H

#include "asm2464pd.h"

typedef unsigned char u8;
typedef unsigned int u16;
typedef unsigned long u32;

#define XDATA(address) ((volatile __xdata u8 *)(address))
#define HIGH(word) ((u8)((word) >> 8))
#define LOW(word) ((u8)(word))

#endif
