// Depthwise convolutions of floats. What happens at the end, and most macros: product.h. WINDOW is defined.
//
// A work-item makes eight channels of STRIP pixels of a row, each with a fused multiply-add a tap: of halves,
// v_fma_mix_f32, which widens them by itself. What the windows of these pixels share is loaded once. The
// window (ROWS, COLUMNS), and the stride and dilation of columns (STRIDE_X, STEP_X) are constants; columns are
// unrolled. x has its channels in a row; w is [tap][channels, whole eights].
#include "plain/product.h"

struct depthwise {
    u32 eights, items; // groups of eight channels; those times strips of a row
    struct divisor by_eights, by_rows;
    u32 rows; // of y
    struct product product;
};

THREADS(64) kernel void NAME(POINTERS, struct depthwise d) {
    u32 item = GROUP * 64 + LANE;
    if (item >= d.items)
        return;
    const struct product *m = &d.product;
    struct tensors tensor = {x, w, bias, y, {OPERAND_POINTERS}, 0};
    u32 strip = divide(item, d.by_eights), channel = (item - strip * d.eights) * 8;
    struct place at = {divide(GROUP_Y, d.by_rows), 0, strip * STRIP};
    at.row = GROUP_Y - at.picture * d.rows;
    struct taps taps = taps_of(at, m);
    taps.first += channel * sizeof(X);
    buffer from_x = buffer_of(x, m->x_bytes);

    float sum[STRIP][8];
    for (u32 s = 0; s < STRIP; s++)
        for (u32 i = 0; i < 8; i++)
            sum[s][i] = 0;
#pragma nounroll
    for (u32 down = 0; down < ROWS; down++) {
        float weight[COLUMNS][8];
        for (u32 right = 0; right < COLUMNS; right++)
            PASTE(load8_, W)(w, (down * COLUMNS + right) * d.eights * 8 + channel, weight[right]);
        s32 row = taps.row + (s32)down * m->step_y;
        bool row_inside = (u32)row < (u32)m->height;
#pragma unroll
        for (u32 c = 0; c < (STRIP - 1) * STRIDE_X + (COLUMNS - 1) * STEP_X + 1; c++) {
            bool inside = row_inside && (u32)(taps.column + (s32)c) < (u32)m->x_width;
            u32 to = taps.first + (down * (u32)m->step_y * m->x.row + c * m->x.column) * (u32)sizeof(X);
            float value[8];
            PASTE(fetch8_, X)(from_x, inside ? to : NOWHERE, 0, value);
            for (u32 s = 0; s < STRIP; s++)
                for (u32 right = 0; right < COLUMNS; right++)
                    if (s * STRIDE_X + right * STEP_X == c)
                        for (u32 i = 0; i < 8; i++)
                            sum[s][i] = __builtin_fmaf(value[i], weight[right][i], sum[s][i]);
        }
    }
#pragma unroll
    for (u32 s = 0; s < STRIP; s++) {
        if (at.column < m->width)
            finish8(sum[s], at, channel, &tensor, m);
        at.column++;
    }
}
