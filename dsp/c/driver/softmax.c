/* Over the middle axis of [outer][size][inner]. */
static void softmax(float *y, const float *x, size_t outer, size_t size, size_t inner) {
  for (size_t i = 0; i < outer; i++)
    for (size_t j = 0; j < inner; j++) {
      size_t start = i * size * inner + j;
      float most = x[start], sum = 0;
      for (size_t k = 1; k < size; k++) most = fmaxf(most, x[start + k * inner]);
      for (size_t k = 0; k < size; k++) sum += y[start + k * inner] = expf(x[start + k * inner] - most);
      for (size_t k = 0; k < size; k++) y[start + k * inner] /= sum;
    }
}
