/* Two HVX contexts at one network, each computing its half of every call on a thread of its own.
 *
 * They meet, at a barrier, before the first call, before those that `schedule` marks (dsp/hexagon/sharing.py), and
 * after the last.
 * The threads are the including file's, which defines, before it includes this:
 *   sleep_while(word, value)   until someone wakes it, if *word is still that; it may return early
 *   wake(word)                 the one thread that sleeps there
 *   take_turn(part)            after each meeting; only the emulator does anything
 */
#ifndef TOWLINE_CONTEXTS_H
#define TOWLINE_CONTEXTS_H

#include "../kernels.h"

/* Of network.c: a byte a call, not 0 where the contexts meet before it. The host sends it. */
extern u8 schedule[];
extern const u32 schedule_bytes;

/* Of network.c, too: of each call the part of the weights that the L2 begins to fetch when it begins, whole vectors;
 * dsp/hexagon/prefetch.py says which. */
extern const struct span fetches[];

/* Several times what any kernel takes. */
enum { STACK_BYTES = 64 << 10 };

enum { SPINS = 1000 }; /* looks at a word before the thread sleeps: halves end at about the same time */

static u32 arrived, meetings; /* of the two; and how often both have */

INLINE u32 look(const u32 *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

/* What either wrote before it, vectors included, the other one sees after it. */
static void meet(u32 part) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  u32 before = look(&meetings);
  if (__atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST) == 2) {
    __atomic_store_n(&arrived, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&meetings, before + 1, __ATOMIC_SEQ_CST);
    wake(&meetings);
  } else {
    wake(&arrived);
    for (u32 spin = 0; spin < SPINS && look(&meetings) == before; spin++) continue;
    while (look(&meetings) == before) sleep_while(&meetings, before);
  }
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  take_turn(part);
}

/* Begin to fetch what later calls read; only one of the threads does. A height of zero would cancel pending requests.
 * l2fetch takes a box: width and stride in bytes, so many rows. */
INLINE void fetch_ahead(u32 call) {
  struct span lines = fetches[call];
  if (lines.bytes)
    Q6_l2fetch_AP((void *)(network.weights + lines.offset),
                  (u64)VECTOR_BYTES << 32 | VECTOR_BYTES << 16 | lines.bytes / VECTOR_BYTES);
}

/* What is done after each layer, by part 0 alone, with the end of what was kept; and that end. */
static u8 *(*after_layer)(const struct layer *, u8 *);
static u8 *kept;

/* One part's share of an inference. */
static void compute_part(u32 part, u32 parts) {
  struct context context = {network.arena, network.weights, part, parts};
  for (u32 i = 0; i < network.layers; i++) {
    const struct layer *layer = &network.layer[i];
    for (u32 k = layer->first; k < layer->first + layer->calls; k++) {
      if (parts > 1 && schedule[k]) meet(part);
      if (!part) fetch_ahead(k);
      network.call[k].kernel(network.call[k].descriptor, &context);
    }
    if (!after_layer) continue;
    if (parts > 1) meet(part);
    if (!part) kept = after_layer(layer, kept);
    if (parts > 1) meet(part);
  }
}

#endif
