// Sums of memory by blocks of 64 KiB: every word, mixed with its place, added up. The host has the same
// (usbgpu/target/checksum.py). Mixing is MurmurHash3's last step (Austin Appleby, public domain): no two words
// in one place are mixed alike, so one that differs always shows, and several are missed once in 2^32 times.
#include "kernel.h"

#define BLOCK (64u << 10)
#define ITEMS 256

struct region {
    u32 words, rest; // whole words, and bytes behind them
};

static inline u32 mixed(u32 word, u32 place) {
    u32 x = word ^ place * 0x9e3779b1u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

// Data begin at a multiple of 4; in the last word, what is behind them counts as 0.
THREADS(ITEMS) kernel void checksum(global const u8 *data, global u32 *sums, struct region region) {
    local u32 shares[ITEMS];
    u32 lane = LANE, first = GROUP * (BLOCK / 4), words = region.words, rest = region.rest, sum = 0;
    u32 end = first + min(BLOCK / 4, words - first);
    for (u32 place = first + lane; place < end; place += ITEMS)
        sum += mixed(((global const u32 *)data)[place], place);
    if (lane == 0 && rest && words - first < BLOCK / 4)
        sum += mixed(((global const u32 *)data)[words] & (1u << 8 * rest) - 1, words);
    shares[lane] = sum;
    for (u32 others = ITEMS / 2; others; others /= 2) {
        sync();
        if (lane < others)
            shares[lane] += shares[lane + others];
    }
    if (lane == 0)
        sums[GROUP] = shares[0];
}
