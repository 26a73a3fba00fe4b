/* How many elements differ from what was recorded by more than `part` of the largest of those. */
static size_t differing(const void *found, const void *recorded, size_t size, enum kind kind, double part) {
  double largest = 0;
  size_t count = 0;
  for (size_t k = 0; k < size; k++)
    if (fabs(number(recorded, k, kind)) > largest) largest = fabs(number(recorded, k, kind));
  for (size_t k = 0; k < size; k++) {
    double a = number(found, k, kind), b = number(recorded, k, kind);
    count += !(fabs(a - b) <= part * largest || a == b || (isnan(a) && isnan(b)));
  }
  return count;
}
