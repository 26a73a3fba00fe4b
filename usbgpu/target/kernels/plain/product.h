// What convolutions and matrix products of floats share: their arguments, where the elements of a batch, a
// pixel and a channel lie, and how a product ends.
//
// y[batch][pixel][channel] = bias[channel] + sum over taps and k of x[batch][pixel, tap][k] * w[batch][channel]
// [tap][k], in float32. Strides are in elements. Macros:
//
//   X, W, Y       element types: half, bf16 or float
//   BATCHES       there is more than one batch
//   WINDOW        a pixel is (picture, row, column), and x has taps around it; else one stride says where a
//                 pixel is, that of columns
//   BIAS          float32, padded to whole tiles of 16 channels
//   EIGHTS        y has a multiple of 8 channels, and they lie in a row
//   OPERANDS      tensors that EPILOGUE reads, at most 4, of types OPERAND0 .. and orders ORDER0 ..
//   EPILOGUE      a function of generated text, float (float sum, const float *operand): what to store of an
//                 element, where operand[i] is that of tensor i at the same place; without it, the sum
#pragma once

#include "plain/plain.h"
#include "plain/orders.h"

#ifndef OPERANDS
#define OPERANDS 0
#endif

struct strides {
    u32 picture, row, column, channel; // of x: of k
};

// An axis of batches.
struct batch {
    struct divisor by_within;
    u32 within; // batches within a step of it
    u32 x, w, bias, y;
#if OPERANDS
    u32 operand[OPERANDS];
#endif
};

struct product {
    u32 pixels, channels; // of y in a batch
    u32 k, steps;         // of a tap: elements; groups of 16 of them
    u32 total, chunk;     // steps of all taps; those of them that a wave makes
    struct divisor by_steps;
    u32 x_bytes, w_bytes; // of a batch, up to the end of the last step
    struct strides x;
    u32 w_channel, w_k; // strides of a w that is not packed
    struct strides y;
#if OPERANDS
    struct strides operand[OPERANDS];
#endif
#ifdef BATCHES
    struct divisor by_tiles;
    u32 tiles; // workgroups in y of a batch
    struct batch batch[3];
#endif
#ifdef WINDOW
    struct divisor by_plane, by_width, by_columns;
    u32 plane, width, columns; // pixels of a picture, of a row of y; taps of a row
    s32 top, left, stride_y, stride_x, step_y, step_x;
    s32 height, x_width; // of x
#endif
};

#if OPERANDS == 0
#define POINTERS global const u8 *x, global const u8 *w, global const float *bias, global u8 *y
#define OPERAND_POINTERS 0
#elif OPERANDS == 1
#define POINTERS                                                                                           \
    global const u8 *x, global const u8 *w, global const float *bias, global u8 *y, global const u8 *operand0
#define OPERAND_POINTERS operand0
#elif OPERANDS == 2
#define POINTERS                                                                                           \
    global const u8 *x, global const u8 *w, global const float *bias, global u8 *y,                        \
        global const u8 *operand0, global const u8 *operand1
#define OPERAND_POINTERS operand0, operand1
#elif OPERANDS == 3
#define POINTERS                                                                                           \
    global const u8 *x, global const u8 *w, global const float *bias, global u8 *y,                        \
        global const u8 *operand0, global const u8 *operand1, global const u8 *operand2
#define OPERAND_POINTERS operand0, operand1, operand2
#else
#define POINTERS                                                                                           \
    global const u8 *x, global const u8 *w, global const float *bias, global u8 *y,                        \
        global const u8 *operand0, global const u8 *operand1, global const u8 *operand2,                   \
        global const u8 *operand3
#define OPERAND_POINTERS operand0, operand1, operand2, operand3
#endif

// The tensors of a batch, and the workgroup's number in y within it.
struct tensors {
    global const u8 *x, *w;
    global const float *bias;
    global u8 *y;
    global const u8 *operand[4];
    u32 group;
};

static inline void enter_batch(struct tensors *t, const struct product *m) {
#ifdef BATCHES
    u32 rest = divide(t->group, m->by_tiles);
    t->group -= rest * m->tiles;
    for (u32 axis = 0; axis < 3; axis++) {
        const struct batch *b = &m->batch[axis];
        u32 at = divide(rest, b->by_within);
        rest -= at * b->within;
        t->x += (u64)at * b->x * sizeof(X);
        t->w += (u64)at * b->w * sizeof(W);
        t->bias += (u64)at * b->bias;
        t->y += (u64)at * b->y * sizeof(Y);
#if OPERANDS > 0
        t->operand[0] += (u64)at * b->operand[0] * sizeof(OPERAND0);
#endif
#if OPERANDS > 1
        t->operand[1] += (u64)at * b->operand[1] * sizeof(OPERAND1);
#endif
#if OPERANDS > 2
        t->operand[2] += (u64)at * b->operand[2] * sizeof(OPERAND2);
#endif
#if OPERANDS > 3
        t->operand[3] += (u64)at * b->operand[3] * sizeof(OPERAND3);
#endif
    }
#endif
}

// -- pixels -------------------------------------------------------------------------------------------------

struct place {
    u32 picture, row, column;
};

static inline struct place place_of(u32 pixel, const struct product *m) {
    struct place at = {0, 0, pixel};
#ifdef WINDOW
    at.picture = divide(pixel, m->by_plane);
    at.column -= at.picture * m->plane;
    at.row = divide(at.column, m->by_width);
    at.column -= at.row * m->width;
#endif
    return at;
}

static inline u32 element_of(struct place at, struct strides by) {
#ifdef WINDOW
    return at.picture * by.picture + at.row * by.row + at.column * by.column;
#else
    return at.column * by.column;
#endif
}

#ifdef WINDOW
// The taps of a pixel: where the window lies, and its first tap in bytes, which may be beside the picture.
struct taps {
    s32 row, column;
    u32 first;
};

static inline struct taps taps_of(struct place at, const struct product *m) {
    struct taps t;
    t.row = (s32)at.row * m->stride_y - m->top;
    t.column = (s32)at.column * m->stride_x - m->left;
    t.first = (at.picture * m->x.picture + (u32)t.row * m->x.row + (u32)t.column * m->x.column) * sizeof(X);
    return t;
}

// Where tap (row, column) of a pixel is, in bytes; NOWHERE in the padding.
static inline u32 tap_of(struct taps t, u32 row, u32 column, const struct product *m) {
    s32 down = (s32)row * m->step_y, right = (s32)column * m->step_x;
    bool inside = (u32)(t.row + down) < (u32)m->height && (u32)(t.column + right) < (u32)m->x_width;
    u32 to = ((u32)down * m->x.row + (u32)right * m->x.column) * sizeof(X);
    return inside ? t.first + to : NOWHERE;
}
#endif

// -- the end of a product -----------------------------------------------------------------------------------

// Eight channels in a row, of which `count` exist: the values of an operand. ORDER: ALONG: they lie in a row;
// SAME: all have one; STRIDED.
#ifdef EIGHTS
#define EXISTS(i) true
#else
#define EXISTS(i) (i < count)
#endif
#define FETCH(number, type, order)                                                                         \
    {                                                                                                      \
        float read[8];                                                                                     \
        struct strides by = m->operand[number];                                                            \
        u32 element = element_of(at, by) + channel * by.channel;                                           \
        if (order == SAME)                                                                                 \
            read[0] = PASTE(load_, type)(t->operand[number], element);                                     \
        else if (order == ALONG && EXISTS(7))                                                              \
            PASTE(load8_, type)(t->operand[number], element, read);                                        \
        else                                                                                               \
            for (u32 i = 0; i < 8; i++)                                                                    \
                read[i] = EXISTS(i) ? PASTE(load_, type)(t->operand[number], element + i * by.channel) : 0; \
        for (u32 i = 0; i < 8; i++)                                                                        \
            operand[i][number] = read[order == SAME ? 0 : i];                                              \
    }

// Store eight channels from `channel` on of a pixel: `sum` without its bias. Nothing beyond the tensor.
static inline void finish8(const float *sum, struct place at, u32 channel, const struct tensors *t,
                           const struct product *m) {
    if (channel >= m->channels)
        return;
    u32 count = m->channels - channel;
    float value[8];
    for (u32 i = 0; i < 8; i++)
#ifdef BIAS
        value[i] = sum[i] + t->bias[channel + i];
#else
        value[i] = sum[i];
#endif
#ifdef EPILOGUE
    float operand[8][OPERANDS + 1];
#if OPERANDS > 0
    FETCH(0, OPERAND0, ORDER0)
#endif
#if OPERANDS > 1
    FETCH(1, OPERAND1, ORDER1)
#endif
#if OPERANDS > 2
    FETCH(2, OPERAND2, ORDER2)
#endif
#if OPERANDS > 3
    FETCH(3, OPERAND3, ORDER3)
#endif
    for (u32 i = 0; i < 8; i++)
        value[i] = EPILOGUE(value[i], operand[i]);
#endif
    u32 element = element_of(at, m->y) + channel * m->y.channel;
#ifdef EIGHTS
    PASTE(store8_, Y)(t->y, element, value);
#else
    for (u32 i = 0; i < 8; i++)
        if (i < count)
            PASTE(store_, Y)(t->y, element + i * m->y.channel, value[i]);
#endif
}
