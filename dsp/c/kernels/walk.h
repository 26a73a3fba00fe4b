#include "base.h"

/* A walk over two arrays at once, the last axis being left to the caller. Steps are in elements. */
struct axis {
  int32_t extent, to, from;
};

enum { MAX_AXES = 8 };

struct walk {
  int32_t to, from, index[MAX_AXES];
};

/* On to the next row; 0 behind the last. */
static int next_row(struct walk *walk, const struct axis *axes, int32_t rank) {
  for (int32_t d = rank - 2; d >= 0; d--) {
    walk->to += axes[d].to, walk->from += axes[d].from;
    if (++walk->index[d] < axes[d].extent) return 1;
    walk->to -= axes[d].extent * axes[d].to, walk->from -= axes[d].extent * axes[d].from;
    walk->index[d] = 0;
  }
  return 0;
}
