/* Of the processor; with threads, of the clock on the wall. */
static double milliseconds(void) {
#if defined(THREADS) && THREADS > 1
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
#else
  return 1e3 * (double)clock() / CLOCKS_PER_SEC;
#endif
}
