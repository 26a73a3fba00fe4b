/* Of the processor; with threads, of the clock on the wall; on a bare board, of its own clock. */
#if defined(BOARD_HERTZ)
extern uint32_t board_ticks(void);
#endif

static double milliseconds(void) {
#if defined(BOARD_HERTZ)
  static double total;
  return total += 1e3 * (double)board_ticks() / BOARD_HERTZ;
#elif defined(THREADS) && THREADS > 1
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
#else
  return 1e3 * (double)clock() / CLOCKS_PER_SEC;
#endif
}
