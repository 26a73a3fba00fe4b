#include "extra.h"

const __code struct request extra_requests[] = {{0, 0, 0, 0}};
