// Between C order (NCHW, or rows of a matrix) and NHWC with a pitch: the network's own boundary, and a Reshape
// of a picture.
#include "kernel.h"

struct layout {
    u32 pixels, channels, pitch;
    u32 channel_step, pixel_step; // in C order
};

// C order to NHWC; a work-item a pixel, a workgroup four channels.
THREADS(64) kernel void to_nhwc(global const u8 *x, global u8 *y, struct layout l) {
    u32 pixel = GROUP * 64 + LANE, channel = GROUP_Y * 4, bytes[4];
    if (pixel >= l.pixels)
        return;
    for (u32 i = 0; i < 4; i++)
        bytes[i] = x[min(channel + i, l.channels - 1) * l.channel_step + pixel * l.pixel_step];
    *(global u32 *)(y + (pixel * l.pitch + channel)) = pack(bytes[0], bytes[1], bytes[2], bytes[3]);
}

// NHWC to C order; a work-item a pixel, a workgroup a channel.
THREADS(64) kernel void to_dense(global const u8 *x, global u8 *y, struct layout l) {
    u32 pixel = GROUP * 64 + LANE, channel = GROUP_Y;
    if (pixel < l.pixels)
        y[channel * l.channel_step + pixel * l.pixel_step] = x[pixel * l.pitch + channel];
}
