// What could not go into another layer: an Add (ADD), a Mul (MULTIPLY), a Lookup (TABLE) or a Requantize. A
// work-item makes four channels of a pixel; tensors may differ in their pitch, and that of a Mul's second
// operand is 0 where all pixels have the same factors.
#include "kernel.h"

struct elementwise {
    u32 items, quads;
    u32 x_pitch, y_pitch;
    float zero, scale;
    struct range range;
    struct residual residual; // of ADD, whose own ratio is `scale`; of MULTIPLY the operand's zero and pitch
    struct divisor by_quads;
};

THREADS(64) kernel void NAME(global const u8 *x, global const u8 *other, global u8 *y, struct elementwise e) {
    u32 item = GROUP * 64 + LANE;
    if (item >= e.items)
        return;
    u32 pixel = divide(item, e.by_quads), channel = (item - pixel * e.quads) * 4, bytes[4];
    u32 value = *(global const u32 *)(x + (pixel * e.x_pitch + channel));
#if defined ADD || defined MULTIPLY
    u32 added = *(global const u32 *)(other + (pixel * e.residual.other_pitch + channel));
#endif
    for (u32 i = 0; i < 4; i++) {
        float own = byte_at(value, i) - e.zero;
#if defined ADD
        bytes[i] = byte_of(add(own, byte_at(added, i), e.residual), e.residual.range);
#elif defined MULTIPLY
        // Both are integers, and so is what they make.
        float factor = byte_at(added, i) - e.residual.other_zero;
        bytes[i] = byte_of(rounded(own * factor * e.scale, e.range), e.range);
#elif defined TABLE
        bytes[i] = other[value >> 8 * i & 255];
#else
        bytes[i] = byte_of(rounded(own * e.scale, e.range), e.range);
#endif
    }
    *(global u32 *)(y + (pixel * e.y_pitch + channel)) = pack(bytes[0], bytes[1], bytes[2], bytes[3]);
}
