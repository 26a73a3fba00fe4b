/* The SPI flash. Main's, but the first three variables, which do not change once interrupts are enabled. */
#ifndef FLASH_H
#define FLASH_H

#include "chip.h"

enum { FLASH_CONFIG_SIZE = 0x80 };
#define FLASH_PAGE 0x100u
#define FLASH_SECTOR 0x1000u
#define FLASH_IMAGE 0x100ul
#define FLASH_SECOND_PART 0x10000ul

extern __xdata u32 flash_size; /* in bytes; 0: no flash answers */
/* idVendor, idProduct and bcdDevice of configuration block 0, if that is good. */
enum { IDENTITY_SIZE = 6 };
extern __xdata u8 flash_identity[IDENTITY_SIZE];
extern __xdata u8 flash_has_identity;

void flash_start(void);

/* Bytes of flash to the start of IN_BUFFER, at most 4 KiB. */
void flash_read(u32 address, u16 length);

/* Begin to write at an address: what is before it in its sector is kept. Returns 0 if the flash refuses or does
 * not answer, like the others here. */
u8 flash_open(u32 address);
/* Write a packet in OUT_BUFFER behind what was written last, and erase the sectors that it reaches. */
u8 flash_write(u16 length);

/* The 128 bytes in OUT_BUFFER become configuration block 0 or 1, whatever they are; all else in its sector is
 * kept. */
u8 flash_write_config(u8 index);

#endif
