/* A hook for requests that the product does not have: a test image links its own file instead of extra.c. */
#ifndef EXTRA_H
#define EXTRA_H

#include "control.h"

extern const __code struct request extra_requests[];

#endif
