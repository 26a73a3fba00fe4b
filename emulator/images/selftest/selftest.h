/* What extra.h adds to the `vendor` test image: requests to test a USB host, a cable, or a model of this chip.
 *
 *  A0 OUT  up to 512 bytes, kept until the next one
 *  A0 IN   the bytes kept
 *  A1      always stalled
 *  A2 OUT  value 0: bulk endpoints idle
 *                1: loopback, every packet of EP 0x02 comes back from EP 0x81
 *                2: source, EP 0x81 gives packets of the largest size without end, byte i of each is i mod 256
 *                3: sink, EP 0x02 takes every packet
 *  A3 IN   4 bytes, least significant first: how many EP 0x02 has taken since the last A2
 */
#ifndef SELFTEST_H
#define SELFTEST_H

#include "extra.h"

#endif
