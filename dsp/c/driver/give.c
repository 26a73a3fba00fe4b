enum kind { UNSIGNED, SIGNED, FLOAT };

static double number(const void *data, size_t k, enum kind kind) {
  uint8_t byte = ((const uint8_t *)data)[kind == FLOAT ? 0 : k];
  return kind == FLOAT ? (double)((const float *)data)[k] : kind == SIGNED && byte > 127 ? byte - 256 : byte;
}

/* To a file, or as a line of text. */
static void give(FILE *file, const void *data, size_t size, enum kind kind) {
  if (file) {
    if (fwrite(data, kind == FLOAT ? sizeof(float) : 1, size, file) != size)
      fail("the output cannot be written");
    return;
  }
  for (size_t k = 0; k < size; k++) {
    if (kind == FLOAT)
      printf("%.9g", number(data, k, kind));
    else
      printf("%d", (int)number(data, k, kind));
    putchar(k + 1 < size ? ' ' : '\n');
  }
}
