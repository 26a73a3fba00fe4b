/* ONNX QuantizeLinear: half to even, saturated. Signed values are stored as their bytes. */
static void quantize(void *q, const float *x, size_t size, float scale, int zero_point, int low, int high) {
  uint8_t *bytes = q;
  for (size_t k = 0; k < size; k++) {
    if (isnan(x[k])) fail("the input holds NaN");
    float rounded = rintf(x[k] / scale);
    int value = rounded < (float)(low - zero_point)    ? low
                : rounded > (float)(high - zero_point) ? high
                                                       : (int)rounded + zero_point;
    bytes[k] = (uint8_t)value;
  }
}
