// Bytes from one place to another, the same box of them in both: Transpose, Concat, and the smaller operand
// of a Mul. A work-item moves a UNIT, which is u8, u32 or u32x4; a stride of 0 reads the same again.
#include "kernel.h"

struct axis {
    u32 extent;
    u32 x_stride, y_stride; // bytes
    struct divisor by_extent;
};

struct copy {
    u32 items;
    struct axis axes[AXES]; // the innermost first
};

THREADS(64) kernel void NAME(global const u8 *x, global u8 *y, struct copy c) {
    u32 rest = GROUP * 64 + LANE, from = 0, to = 0;
    if (rest >= c.items)
        return;
    for (u32 i = 0; i < AXES; i++) {
        struct axis axis = c.axes[i];
        u32 outer = i + 1 < AXES ? divide(rest, axis.by_extent) : 0, at = rest - outer * axis.extent;
        from += at * axis.x_stride;
        to += at * axis.y_stride;
        rest = outer;
    }
    *(global UNIT *)(y + to) = *(global const UNIT *)(x + from);
}
