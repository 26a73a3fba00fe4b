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

/* The handler's: the request. */
void supply_request(void);
/* Main's: go on with the measurement, if one is wanted. */
void supply_poll(void);

#endif
