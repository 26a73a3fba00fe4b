/* Running a list: its operations one after the other, until the first that fails. Main's.
 *
 * The fast loops are in block.h; here is the code around them, one function for each operation, in a table by
 * opcode. Every wait has a bound, except waits for the host: for payload, and for results to be read.
 */
#ifndef EXECUTE_H
#define EXECUTE_H

#include "list.h"

/* Operations of the last list that were done, so also the index of the one that failed. */
extern u16 execute_index;

/* Run the operations of a list that has been checked, from block_operation up to `after`. Returns a cause;
 * if an operation failed, list_failure has the details. */
u8 execute(volatile __xdata u8 *after);

#endif
