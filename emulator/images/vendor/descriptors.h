/* Descriptors, by type and index, for the speed of the link. */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

#include "chip.h"

/* Copies a descriptor to EP0_BUFFER. Its length, 0 if there is none. */
u8 descriptor_copy(u8 type, u8 index);

#endif
