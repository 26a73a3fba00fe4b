/* Descriptors, by type and index, for the speed of the link (USB 3.2 and 2.0, 9.6). The handler's.
 *
 * The product string begins with `custom`: hosts of the open firmware look for that.
 */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

#include "chip.h"

/* Copies a descriptor to EP0_BUFFER. Returns its length, 0 if it does not exist. */
u8 descriptor_copy(u8 type, u8 index);

#endif
