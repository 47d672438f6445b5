#include "ap.h"

/* An integer of a float, towards 0 */
static int64_t whole(ap_f32 x, ap_f32 bound, int64_t least) { return x > -bound && x < bound ? (int64_t)x : least; }

static int64_t integer(int from, const void *x, size_t i)
{
    switch (from) {
    case AP_INT64: return ((const int64_t *)x)[i];
    case AP_INT32: return ((const int32_t *)x)[i];
    case AP_INT8: return ((const int8_t *)x)[i];
    default: return ((const uint8_t *)x)[i];
    }
}

void ap_cast(size_t count, int from, const void *x, int to, void *y)
{
    for (size_t i = 0; i < count; i++) {
        if (from == AP_FLOAT32 && to == AP_BOOL) {
            ((uint8_t *)y)[i] = ((const ap_f32 *)x)[i] != 0.0f;
            continue;
        }
        if (to == AP_FLOAT32) {
            ((ap_f32 *)y)[i] = from == AP_FLOAT32 ? ((const ap_f32 *)x)[i] : (ap_f32)integer(from, x, i);
            continue;
        }
        int64_t value;
        if (from != AP_FLOAT32)
            value = integer(from, x, i);
        else if (to == AP_INT64)
            value = whole(((const ap_f32 *)x)[i], 9223372036854775808.0f, INT64_MIN);
        else
            value = whole(((const ap_f32 *)x)[i], 2147483648.0f, INT32_MIN);
        const uint64_t bits = (uint64_t)value;
        const uint32_t low = (uint32_t)bits;
        switch (to) {
        case AP_INT64: ((int64_t *)y)[i] = value; break;
        case AP_INT32: ap_copy((int32_t *)y + i, &low, 4); break;
        case AP_BOOL: ((uint8_t *)y)[i] = value != 0; break;
        default: ((uint8_t *)y)[i] = (uint8_t)bits;
        }
    }
}
