/* Descriptors. The handler's. */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

#include "chip.h"

/* Put a descriptor into EP0_BUFFER; its length, 0 if it does not exist at this speed. */
u8 descriptor_copy(u8 type, u8 index);

#endif
