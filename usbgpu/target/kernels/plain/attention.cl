// Attention of float16 and bfloat16 with WMMA: softmax(q k^T) v, with Maps on the way, whose scores stay in
// registers. Products and softmax are in float32; what the graph stores is rounded there.
//
// A workgroup makes 16 queries. Each of its WAVES waves has TILES x 16 of the keys: their scores, eight of a tile
// in a lane, become eight k of the operand that meets v. The waves find the rows' maxima and sums together, and
// add their results in LDS, CHANNELS x 16 channels of y at a time. How q, k and v lie: Q_ORDER, K_ORDER (their k
// are of the first product), V_ORDER (its k are keys). TAIL: depth fills no whole steps. MASKED: what lies behind
// the last key of v must count as 0, be it NaN; else its buffer ends there. AXES of batches.
//
// Generated text defines these, and OPERANDS, OPERAND_PARAMETERS and OPERAND_LIST of the tensors that they read:
//   Q_MAP(x), K_MAP(x)   what to take for an element of q, of k; if there is anything to do
//   SCORE8(sum, ...), WEIGHT8(softmax, ...)   change eight in place: what softmax takes, and what meets v, both
//                        before the last rounding; operand[i] is at the query's row, `key` the first key's number,
//                        of `count` keys
#include "plain/matrix.h"

// An axis of batches. Strides are in elements; of operands, in bytes.
struct batch {
    struct divisor by_within;
    u32 within; // batches within a step of it
    u32 q, k, v, y;
    s32 operand[OPERANDS + 1];
};

struct attention {
    u32 queries, keys, channels; // of a batch
    u32 steps, depth;            // of the first product: groups of 16 k, k
    u32 q_bytes, k_bytes, v_bytes;
    u32 q_row, q_k, k_row, k_k, v_key, v_channel, y_row, y_channel;
    s32 operand_row[OPERANDS + 1], operand_key[OPERANDS + 1];
    struct batch batch[AXES];
};

// A word holds two elements.
#define ELEMENT(word, i) PASTE(X, _of)(word, i)
#define STORED(value) (u32) __builtin_bit_cast(u16, PASTE(narrow_, X)(value))

// A function of all that an operand holds.
#define CHANGED(f, held)                                                                                   \
    for (u32 i = 0; i < WORDS; i++)                                                                        \
        held[i] = STORED(f(ELEMENT(held[i], 0))) | STORED(f(ELEMENT(held[i], 1))) << 16;

// Which k of a step of 16 exist, as a mask.
static inline operand existing(u32 step, u32 end, u32 upper) {
    operand kept;
    for (u32 i = 0; i < WORDS; i++) {
        u32 low = step * 16 + FIRST + 2 * i;
        kept[i] = (low < end ? 0xffff : 0) | (low + 1 < end ? 0xffff0000 : 0);
    }
    return kept;
}

// The other half of the wave's.
static inline u32 swapped(u32 own) {
    return __builtin_amdgcn_permlanex16(own, own, 0x76543210, 0xfedcba98, false, false);
}
static inline float swapped_float(float own) {
    return __builtin_bit_cast(float, swapped(__builtin_bit_cast(u32, own)));
}

// Eight keys of a query, of a lane and of the one 16 away, as what a lane holds of 16 k.
static inline operand gathered(const float *eight, u32 upper) {
    u32x4 own;
    for (u32 i = 0; i < 4; i++)
        own[i] = STORED(eight[2 * i]) | STORED(eight[2 * i + 1]) << 16;
#ifdef __GFX12__
    return own;
#else
    operand all;
    for (u32 i = 0; i < 4; i++) {
        u32 other = swapped(own[i]);
        all[i] = upper ? other : own[i];
        all[i + 4] = upper ? own[i] : other;
    }
    return all;
#endif
}

typedef half half_four __attribute__((ext_vector_type(4), aligned(2)));
typedef u16 bf16_four __attribute__((ext_vector_type(4), aligned(2)));

// Four channels of y from `channel` on, of those that exist.
static inline void store4(global u8 *y, u32 element, u32 channel, f32x4 value, const struct attention *m) {
#ifdef FOURS
    PASTE(X, _four) stored;
    for (u32 i = 0; i < 4; i++)
        stored[i] = PASTE(narrow_, X)(value[i]);
    if (channel < m->channels)
        *(global PASTE(X, _four) *)((global X *)y + element) = stored;
#else
    for (u32 i = 0; i < 4; i++)
        if (channel + i < m->channels)
            PASTE(store_, X)(y, element + i * m->y_channel, value[i]);
#endif
}

THREADS(32 * WAVES) kernel void NAME(global const u8 *q, global const u8 *k, global const u8 *v,
                                     global u8 *y OPERAND_PARAMETERS, struct attention m) {
    u32 lane = LANE % 32, share = __builtin_amdgcn_readfirstlane(LANE / 32);
    u32 within = lane % 16, upper = lane / 16;
    u32 query = GROUP * 16 + within, first = share * (TILES * 16);
    // Beyond the last query, operands are read where the last one's are.
    u32 row = min(query, m.queries - 1);
    global const u8 *operand_of[OPERANDS + 1] = {OPERAND_LIST};
    for (u32 i = 0; i < OPERANDS; i++)
        operand_of[i] += (s64)((s32)row * m.operand_row[i]);
    u32 rest = GROUP_Y;
    for (u32 axis = 0; axis < AXES; axis++) {
        const struct batch *b = &m.batch[axis];
        u32 at = divide(rest, b->by_within);
        rest -= at * b->within;
        q += (u64)at * b->q * 2;
        k += (u64)at * b->k * 2;
        v += (u64)at * b->v * 2;
        y += (u64)at * b->y * 2;
        for (u32 i = 0; i < OPERANDS; i++)
            operand_of[i] += (s64)at * b->operand[i];
    }

    // Scores: keys by queries.
    buffer from_q = buffer_of(q, m.q_bytes), from_k = buffer_of(k, m.k_bytes);
    u32 at_q = query < m.queries ? (query * m.q_row + FIRST * m.q_k) * 2 : NOWHERE, at_k[TILES];
    f32x8 score[TILES];
    for (u32 t = 0; t < TILES; t++) {
        u32 key = first + t * 16 + ROW(within);
        at_k[t] = key < m.keys ? (key * m.k_row + FIRST * m.k_k) * 2 : NOWHERE;
        score[t] = 0;
    }
    for (u32 step = 0; step < m.steps; step++) {
        operand a[TILES], b;
        load(&b, 1, Q_ORDER, from_q, &at_q, step * 16, m.q_k);
        load(a, TILES, K_ORDER, from_k, at_k, step * 16, m.k_k);
#ifdef Q_MAP
        CHANGED(Q_MAP, b)
#endif
#ifdef K_MAP
        for (u32 t = 0; t < TILES; t++)
            CHANGED(K_MAP, a[t])
#endif
#ifdef TAIL
        if (step + 1 == m.steps) {
            operand kept = existing(step, m.depth, upper);
            b &= kept;
            for (u32 t = 0; t < TILES; t++)
                a[t] &= kept;
        }
#endif
        for (u32 t = 0; t < TILES; t++)
            score[t] = WMMA(a[t], b, score[t]);
    }

    // Softmax over the keys, which are in eight registers of a tile, two halves of a wave, and the waves.
    float top = -INFINITY, sum = 0;
    for (u32 t = 0; t < TILES; t++) {
        u32 key = first + t * 16 + upper * 8;
        float eight[8];
        for (u32 i = 0; i < 8; i++)
            eight[i] = score[t][i];
        SCORE8(eight, operand_of, m.operand_key, key, m.keys);
        for (u32 i = 0; i < 8; i++) {
            score[t][i] = (s32)i < (s32)(m.keys - key) ? eight[i] : -INFINITY;
            top = __builtin_fmaxf(top, score[t][i]); // a NaN is met in the sum
        }
    }
    top = __builtin_fmaxf(top, swapped_float(top));
#if WAVES > 1
    // What waves hand to each other: maxima, sums, and in their place parts of y.
    local f32x4 parts[WAVES][CHANNELS * 2][32];
    local float(*tops)[WAVES] = (local float(*)[WAVES])parts, (*totals)[WAVES] = tops + 16;
    // By both halves: clang 19 sinks the exchange into a branch that only one of them takes.
    tops[within][share] = top;
    sync();
    for (u32 wave = 0; wave < WAVES; wave++)
        top = __builtin_fmaxf(top, tops[within][wave]);
#endif
    for (u32 t = 0; t < TILES; t++)
        for (u32 i = 0; i < 8; i++) {
            score[t][i] = EXP2((score[t][i] - top) * LOG2_E);
            sum += score[t][i];
        }
    sum += swapped_float(sum);
#if WAVES > 1
    totals[within][share] = sum;
    sync();
    sum = 0;
    for (u32 wave = 0; wave < WAVES; wave++)
        sum += totals[within][wave];
#endif
    float factor = 1.0f / sum;
    operand weight[TILES];
    for (u32 t = 0; t < TILES; t++) {
        u32 key = first + t * 16 + upper * 8;
        float eight[8];
        for (u32 i = 0; i < 8; i++)
            eight[i] = score[t][i] * factor;
        WEIGHT8(eight, operand_of, m.operand_key, key, m.keys);
#if OPERANDS // of weights, too: what these make of no key may be a NaN
        for (u32 i = 0; i < 8; i++)
            eight[i] = (s32)i < (s32)(m.keys - key) ? eight[i] : 0;
#endif
        weight[t] = gathered(eight, upper);
    }

    // Channels by queries.
    buffer from_v = buffer_of(v, m.v_bytes);
#ifdef MASKED
    operand last = existing((m.keys - 1) / 16, m.keys, upper);
#endif
    for (u32 from = 0; from < m.channels; from += CHANNELS * 16) {
        u32 at_v[CHANNELS];
        f32x8 made[CHANNELS];
        for (u32 c = 0; c < CHANNELS; c++) {
            u32 at = from + (V_ORDER == ACROSS ? ROW(within) * CHANNELS + c : c * 16 + ROW(within));
            at_v[c] = at < m.channels ? (at * m.v_channel + FIRST * m.v_key) * 2 : NOWHERE;
            made[c] = 0;
        }
#pragma unroll
        for (u32 t = 0; t < TILES; t++) {
            u32 key = first + t * 16;
            if (key >= m.keys)
                continue;
            operand a[CHANNELS];
            load(a, CHANNELS, V_ORDER, from_v, at_v, key, m.v_key);
#ifdef MASKED
            if (key + 16 > m.keys)
                for (u32 c = 0; c < CHANNELS; c++)
                    a[c] &= last;
#endif
            for (u32 c = 0; c < CHANNELS; c++)
                made[c] = WMMA(a[c], weight[t], made[c]);
        }
        f32x4 fours[CHANNELS * 2]; // in the order of the channels
        for (u32 i = 0; i < CHANNELS * 8; i++)
            fours[i / 4][i % 4] = V_ORDER == ACROSS ? made[i % CHANNELS][i / CHANNELS] : made[i / 8][i % 8];
#if WAVES > 1
        sync();
        for (u32 i = 0; i < CHANNELS * 2; i++)
            parts[share][i][lane] = fours[i];
        sync();
        for (u32 i = share; i < CHANNELS * 2; i += WAVES) {
            f32x4 total = parts[0][i][lane];
            for (u32 wave = 1; wave < WAVES; wave++)
                total += parts[wave][i][lane];
#else
        for (u32 i = 0; i < CHANNELS * 2; i++) {
            f32x4 total = fours[i];
#endif
            u32 across = upper * 8 * CHANNELS + i * 4, along = i / 2 * 16 + upper * 8 + i % 2 * 4;
            u32 channel = from + (V_ORDER == ACROSS ? across : along);
            if (query < m.queries)
                store4(y, query * m.y_row + channel * m.y_channel, channel, total, &m);
        }
    }
}
