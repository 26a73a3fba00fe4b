#include "base.h"

/* Nested loops over up to three arrays at once. Steps are in bytes. */
enum { STREAMS = 3, LOOPS = 8 };

struct loop {
  int64_t extent, step[STREAMS];
};

struct position {
  int64_t at[STREAMS], index[LOOPS];
};

/* On to the next element of the outermost `count` loops; 0 behind the last. */
static int next_position(struct position *position, const struct loop *loops, int32_t count) {
  for (int32_t d = count - 1; d >= 0; d--) {
    for (int i = 0; i < STREAMS; i++) position->at[i] += loops[d].step[i];
    if (++position->index[d] < loops[d].extent) return 1;
    for (int i = 0; i < STREAMS; i++) position->at[i] -= loops[d].extent * loops[d].step[i];
    position->index[d] = 0;
  }
  return 0;
}
