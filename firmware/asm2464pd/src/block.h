/* The loops that decide how fast lists are, in assembly. Main's, all of it.
 *
 * Clocks are noted beside the instructions: for a 1T core whose MOVX takes 5 (docs/emulator.md). The comment
 * of each loop gives its cost. TLPs are launched as tlp.h describes: TLP_CLEAR, then TLP_SEND. The address
 * registers may be changed once a request is launched: the open firmware's stream writes do so.
 */
#ifndef BLOCK_H
#define BLOCK_H

#include "chip.h"

/* The next operation. */
extern volatile __xdata u8 *block_operation;
/* From a dword of a block to the next: 4, or 0 for a FIFO. */
extern u8 block_step;
/* Destination of the next dword that is read. */
extern volatile __xdata u8 *block_place;
/* The checksums of all that block_copy has copied since they were 0. */
extern u8 block_first, block_second;

/* Copy 4 * quads bytes (0: 256 quads) from a page of XDATA to another one, upwards. */
void block_copy(u8 from_page, u8 to_page, u8 quads);

/* Load the TLP engine with byte enables, address and value of block_operation, and advance it behind them.
 * Returns the bit of TLP_FMT_TYPE for a 64-bit address, if it is one. block_misfit is not 0 if it cannot be a
 * request for a dword: byte enables above 15, or an address that is not a multiple of 4. */
u8 block_load(void);
extern u8 block_misfit;

/* Do up to `limit` operations from block_operation on, as long as they are well-formed WRITEs. Returns how
 * many were done. */
u8 block_writes(u8 limit);

/* Write 1 to 255 dwords of the packet of payload in BULK_OUT_BUFFER, from the address in the engine on, with
 * TLP_FMT_TYPE as set there; the address advances by block_step. Returns whether a sum of the packet was
 * wrong. */
u8 block_write(u8 dwords);

/* Put TLP_DATA at block_place. */
void block_store(void);

/* A read has been launched: wait for it, store it, launch the next one, and so on `more` times, which leaves
 * the last one in flight. Ends early at a completion that is late or not clearly good, which is left to
 * tlp_wait. Returns how many were not launched. The address in the engine is that of the request in flight if
 * all were, or else is already a step further. */
u8 block_read(u8 more);

#endif
