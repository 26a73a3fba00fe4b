/* Reading a table of bytes in CODE, one by one. Main's until the handler runs, then the handler's. */
#ifndef TABLE_H
#define TABLE_H

#include "chip.h"

/* The byte that is next. */
extern const __code u8 *table;

/* Keeps its caller's registers, which makes the callers' loops small. */
#pragma callee_saves table_next
u8 table_next(void);

#endif
