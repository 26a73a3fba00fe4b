#ifndef FAILURE
#define FAILURE
/* The first index of this run that was out of range; `limit` is 0 while there is none. */
static struct failure {
  int64_t index, limit;
} failure;
#endif
