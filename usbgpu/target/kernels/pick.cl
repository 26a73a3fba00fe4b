// Resize and Pad: where each row and column of the output comes from; -1 is the border. A work-item makes
// four channels of a pixel.
#include "kernel.h"

struct pick {
    u32 items, quads, width; // items: pixels x quads; width: of the output
    u32 x_width, x_pitch, y_pitch;
    u32 padding;             // four times the zero point
    struct divisor by_quads, by_width;
};

THREADS(64) kernel void NAME(global const u8 *x, global const s32 *rows, global const s32 *columns,
                             global u8 *y, struct pick p) {
    u32 item = GROUP * 64 + LANE;
    if (item >= p.items)
        return;
    u32 pixel = divide(item, p.by_quads), channel = (item - pixel * p.quads) * 4;
    u32 row = divide(pixel, p.by_width);
    s32 from_row = rows[row], from_column = columns[pixel - row * p.width];
    u32 value = p.padding;
    if (from_row >= 0 && from_column >= 0)
        value = *(global const u32 *)(x + ((from_row * p.x_width + from_column) * p.x_pitch + channel));
    *(global u32 *)(y + (pixel * p.y_pitch + channel)) = value;
}
