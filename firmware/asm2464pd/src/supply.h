/* The dock's supply: the request SUPPLY, and the sensor on the I2C bus.
 *
 * A measurement is four transactions, some 0.1 ms each: for each of two voltages the sensor's register is set,
 * then read. Nothing waits for them: main looks after the one that runs whenever it looks at the time
 * (timer_poll), also in the middle of a list. So the request neither holds up other work nor is held up by it.
 */
#ifndef SUPPLY_H
#define SUPPLY_H

#include "chip.h"

/* The host waits for a measurement. The handler's, and main's in a HOLD. */
extern volatile __bit supply_wanted;
/* Main has something to do in supply_poll: a measurement is wanted, or one runs. Handler's, and main's in a
 * HOLD. A bit of its own, for it is looked at in every loop that waits. */
extern volatile __bit supply_busy;

/* The handler's: the request. */
void supply_request(void);
/* Main's, if it is busy: go on with the measurement. */
void supply_poll(void);

#endif
