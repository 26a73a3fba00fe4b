/* Running a list: its operations one after the other, until the first that fails. Main's.
 *
 * The loops that matter are in block.h; here is what goes around them, a function an operation, in a table by
 * opcode. No operation waits without a bound, except for the host: for payload, and for results to be read.
 */
#ifndef EXECUTE_H
#define EXECUTE_H

#include "list.h"

/* Operations that were done, of the list that ran last: the index of the one that failed. */
extern u16 execute_index;

/* Run the operations of a list that has been checked, from block_operation up to `after`. Returns a cause,
 * and list_failure has it all, if one failed. */
u8 execute(volatile __xdata u8 *after);

#endif
