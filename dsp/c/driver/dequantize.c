/* ONNX DequantizeLinear */
static void dequantize(float *x, const void *q, size_t size, float scale, int zero_point, int is_signed) {
  const uint8_t *bytes = q;
  for (size_t k = 0; k < size; k++) {
    int value = is_signed && bytes[k] > 127 ? bytes[k] - 256 : bytes[k];
    x[k] = (float)(value - zero_point) * scale;
  }
}
