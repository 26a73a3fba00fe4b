enum kind { BOOL_KIND, INT8_KIND, UINT8_KIND, INT16_KIND, UINT16_KIND, INT32_KIND, INT64_KIND, FLOAT32_KIND,
            FLOAT16_KIND, BFLOAT16_KIND, FLOAT8E4M3FN_KIND, FLOAT8E5M2_KIND };

static double value_of(enum kind kind, const uint8_t *p) {
  switch (kind) {
    case BOOL_KIND: return load_bool(p);
    case INT8_KIND: return (double)load_int8(p);
    case UINT8_KIND: return (double)load_uint8(p);
    case INT16_KIND: return (double)load_int16(p);
    case UINT16_KIND: return (double)load_uint16(p);
    case INT32_KIND: return (double)load_int32(p);
    case INT64_KIND: return (double)load_int64(p);
    case FLOAT32_KIND: return (double)load_float32(p);
    case FLOAT16_KIND: return (double)load_float16(p);
    case BFLOAT16_KIND: return (double)load_bfloat16(p);
    case FLOAT8E4M3FN_KIND: return (double)load_float8e4m3fn(p);
    case FLOAT8E5M2_KIND: return (double)load_float8e5m2(p);
  }
  return 0;
}

static double number(const void *data, size_t k, enum kind kind) {
  static const uint8_t bytes[] = {1, 1, 1, 2, 2, 4, 8, 4, 2, 2, 1, 1}; /* of an element, by its kind */
  return value_of(kind, (const uint8_t *)data + k * bytes[kind]);
}

/* To a file, or as a line of text. `bytes` are those of an element. */
static void give(FILE *file, const void *data, size_t size, size_t bytes, enum kind kind) {
  if (file) {
    if (fwrite(data, bytes, size, file) != size) fail("the output cannot be written");
    return;
  }
  for (size_t k = 0; k < size; k++) {
    const uint8_t *element = (const uint8_t *)data + k * bytes;
    if (kind == INT64_KIND)
      printf("%lld", (long long)load_int64(element));
    else
      printf("%.9g", value_of(kind, element));
    putchar(k + 1 < size ? ' ' : '\n');
  }
}
