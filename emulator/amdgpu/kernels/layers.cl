// Layers of a quantised network: u8 activations in NHWC order, s8 weights, float scales.
#include "kernel.h"

// 1 x 1 convolution. A work-item makes 4 channels of a pixel. `bias` holds -(sum of weights) * zero of the input.
THREADS(64, 1) kernel void pointwise(global const u32 *input, global const u32 *weights, global const s32 *bias,
                                     global const float *scale, global u32 *output, u32 pixels, u32 from,
                                     u32 to, s32 zero) {
    u32 item = GROUP * 64 + LANE, quads = to / 4;
    if (item >= pixels * quads)
        return;
    u32 pixel = item / quads, quad = item % quads, result[4];
    for (u32 i = 0; i < 4; i++) {
        u32 channel = quad * 4 + i;
        s32 sum = bias[channel];
        for (u32 j = 0; j < from / 4; j++)
            sum = __builtin_amdgcn_sudot4(0, input[pixel * (from / 4) + j], 1,
                                          weights[channel * (from / 4) + j], sum, 0);
        result[i] = requantise(sum, scale[channel], zero);
    }
    output[item] = pack(result[0], result[1], result[2], result[3]);
}

// 3 x 3 convolution of each channel with its own weights, [9][channels]; the border is `zero_in`. A row of
// pixels is a workgroup in y, a work-item makes 4 channels of a pixel.
THREADS(64, 1) kernel void depthwise(global const u8 *input, global const s8 *weights, global const s32 *bias,
                                     global const float *scale, global u32 *output, s32 height, s32 width,
                                     u32 channels, s32 zero_in, s32 zero_out) {
    u32 item = GROUP * 64 + LANE, quads = channels / 4;
    if (item >= width * quads)
        return;
    s32 x = item / quads, y = GROUP_Y;
    u32 first = item % quads * 4, result[4];
    for (u32 i = 0; i < 4; i++) {
        u32 channel = first + i;
        s32 sum = bias[channel];
        for (s32 dy = -1; dy <= 1; dy++)
            for (s32 dx = -1; dx <= 1; dx++) {
                bool inside = y + dy >= 0 && y + dy < height && x + dx >= 0 && x + dx < width;
                s32 value = inside ? input[((y + dy) * width + x + dx) * channels + channel] : zero_in;
                sum += (value - zero_in) * weights[((dy + 1) * 3 + dx + 1) * channels + channel];
            }
        result[i] = requantise(sum, scale[channel], zero_out);
    }
    output[y * width * quads + item] = pack(result[0], result[1], result[2], result[3]);
}

// Mean of all pixels by channel. `scale` is input's / (output's * pixels).
THREADS(64, 1) kernel void average_pool(global const u8 *input, global u8 *output, u32 pixels, u32 channels,
                                        s32 zero_in, float scale, s32 zero_out) {
    u32 channel = GROUP * 64 + LANE;
    if (channel >= channels)
        return;
    s32 sum = 0;
    for (u32 i = 0; i < pixels; i++)
        sum += input[i * channels + channel];
    output[channel] = requantise(sum - (s32)pixels * zero_in, scale, zero_out);
}

// output = a + b, each with its own scale. A work-item makes 4 elements.
THREADS(64, 1) kernel void add(global const u32 *a, global const u32 *b, global u32 *output, u32 dwords,
                               s32 zero_a, float scale_a, s32 zero_b, float scale_b, s32 zero_out) {
    u32 item = GROUP * 64 + LANE;
    if (item >= dwords)
        return;
    u32 packed = 0;
    for (u32 i = 0; i < 32; i += 8) {
        float left = (float)((s32)(a[item] >> i & 255) - zero_a) * scale_a;
        float right = (float)((s32)(b[item] >> i & 255) - zero_b) * scale_b;
        s32 value = (s32)__builtin_rintf(left + right) + zero_out;
        packed |= (u32)(value < 0 ? 0 : value > 255 ? 255 : value) << i;
    }
    output[item] = packed;
}
