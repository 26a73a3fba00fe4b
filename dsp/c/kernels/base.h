/* What all kernels share. Portable C11: activations are uint8_t, constants are little-endian bytes, and
 * nothing depends on alignment, byte order or the width of int.
 *
 * Floats. Requantisation is rint(float(acc) * scale), rounded once in the conversion, once in the product and
 * once in rint, half to even. Each of these is an operation of its own here (rint works on the float's bits),
 * so that neither contraction to fused multiply-adds nor -ffast-math finds anything to change. What remains
 * is the format:
 */
#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if FLT_RADIX != 2 || FLT_MANT_DIG != 24 || FLT_MAX_EXP != 128
#error "float must be IEEE 754 binary32"
#endif
#if FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16 /* 16: of _Float16 alone (TS 18661-3) */
#error "float must be evaluated as float: on x86 compile with -msse2 -mfpmath=sse"
#endif
