static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", program, what);
  exit(1);
}

/* 0 at the end of the file; a file that ends within a sample is refused. */
static int take(FILE *file, void *data, size_t bytes, int first) {
  size_t got = fread(data, 1, bytes, file);
  if (got == bytes) return 1;
  if (ferror(file)) fail("the input cannot be read");
  if (got || !first) fail("the input ends within a sample");
  return 0;
}
