#include "base.h"

/* Products of gathered pixels and weights, summed: of numbers from -255 to 255 by int8, exact in int32, so that
 * all forms give the same bits. Each form has its own file; the first whose instructions the compiler's macros
 * announce defines KERNELS, `weave` and `dots`.
 *
 * A panel holds the terms of PIXELS pixels, in the order that suits the form: `weave` puts pair number `pair` of
 * `pairs` into it, two rows of pixels less the zero-point; of both, the first `count` matter. `dots` sums the products of a panel and of OUTPUTS
 * outputs' weights, which are int8 [pairs][OUTPUTS][2]. */
enum { PIXELS = 32, OUTPUTS = 4 };
