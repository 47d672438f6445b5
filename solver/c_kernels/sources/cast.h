/* Elements in another type. */
#ifndef AP_CAST_H
#define AP_CAST_H
#include "ap.h"

enum { AP_FLOAT32, AP_INT64, AP_INT32, AP_INT8, AP_UINT8, AP_BOOL };
/* A float that the type has no number for becomes its least one; integers are cut to their last bits. */
void ap_cast(size_t count, int from, const void *x, int to, void *y);
#endif
