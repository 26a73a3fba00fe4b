enum kind { UNSIGNED, SIGNED, FLOAT };

/* To a file, or as a line of text. */
static void give(FILE *file, const void *data, size_t size, enum kind kind) {
  const uint8_t *bytes = data;
  const float *floats = data;
  if (file) {
    if (fwrite(data, kind == FLOAT ? sizeof *floats : 1, size, file) != size)
      fail("the output cannot be written");
    return;
  }
  for (size_t k = 0; k < size; k++) {
    if (kind == FLOAT)
      printf("%.9g", (double)floats[k]);
    else
      printf("%d", kind == SIGNED && bytes[k] > 127 ? bytes[k] - 256 : bytes[k]);
    putchar(k + 1 < size ? ' ' : '\n');
  }
}
