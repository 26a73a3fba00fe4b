/* Reads a table in CODE byte by byte. Main's until the handler runs, then the handler's. */
#ifndef TABLE_H
#define TABLE_H

#include "chip.h"

/* The next byte. */
extern const __code u8 *table;

/* Keeps its caller's registers, which makes the callers' loops small. */
#pragma callee_saves table_next
u8 table_next(void);

#endif
