// What kernels that are written for a network include: the types of elements, and elementary functions.
#pragma once
#include "plain/maths.h"

// a / b, correctly rounded: a quotient of floats that is rounded to double first is.
static inline float quotient(float a, float b) { return (float)((double)a / (double)b); }
