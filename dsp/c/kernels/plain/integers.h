#include "plain/elements.h"

/* Integers and truth values of any width, as int64_t. */
enum integer { BOOL, INT8, UINT8, INT16, UINT16, INT32, INT64 };

HELPER int64_t load_integer(enum integer type, const uint8_t *p) {
  switch (type) {
    case BOOL: return load_bool(p);
    case INT8: return load_int8(p);
    case UINT8: return load_uint8(p);
    case INT16: return load_int16(p);
    case UINT16: return load_uint16(p);
    case INT32: return load_int32(p);
    case INT64: return load_int64(p);
  }
  return 0;
}

HELPER void store_integer(enum integer type, uint8_t *p, int64_t value) {
  switch (type) {
    case BOOL: store_bool(p, value != 0); break;
    case INT8: store_int8(p, value); break;
    case UINT8: store_uint8(p, value); break;
    case INT16: store_int16(p, value); break;
    case UINT16: store_uint16(p, value); break;
    case INT32: store_int32(p, value); break;
    case INT64: store_int64(p, value); break;
  }
}
