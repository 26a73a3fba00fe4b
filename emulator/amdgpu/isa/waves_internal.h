/* Between waves.c, which schedules, and access.c, which reaches memory. */
#ifndef TOWLINE_WAVES_INTERNAL_H
#define TOWLINE_WAVES_INTERNAL_H

#include "waves.h"

/* What a wave asks of the main stack. */
enum { REQUEST_NOTHING, REQUEST_TRANSLATE, REQUEST_WAIT, REQUEST_STOP };

/* Leave the wave until the main stack has dealt with a request. */
void waves_ask(struct waves_run *run, int request);

#endif
