/* Dwords from PCIe to memory, as fast as completions come. Main's.
 *
 * The hot loop is block_read; here are the cases it leaves out: the last dword, a completion that is late or
 * not clearly good, and requests that follow one that was given up (tlp.h).
 */
#ifndef FETCH_H
#define FETCH_H

#include "chip.h"

/* Why the last fetch ended, as from tlp_wait. */
extern u8 fetch_cause;

/* Read 1 to 256 dwords with TLP_FMT_TYPE and the address as set in the engine, to block_place, in steps of
 * block_step. Returns how many were not read; if all were, the address is behind the last one. */
u16 fetch(u16 dwords);

#endif
