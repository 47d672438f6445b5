#include "ap.h"

/* Calls EACH for every element i of the result, with the places a, b, c of the operands' elements */
#define WALK(EACH)                                                                                                     \
    {                                                                                                                  \
        size_t i = 0;                                                                                                  \
        const size_t *n = s->extent, *p = s->step_a, *q = s->step_b, *r = s->step_c;                                   \
        for (size_t i0 = 0; i0 < n[0]; i0++)                                                                           \
            for (size_t i1 = 0; i1 < n[1]; i1++)                                                                       \
                for (size_t i2 = 0; i2 < n[2]; i2++)                                                                   \
                    for (size_t i3 = 0; i3 < n[3]; i3++)                                                               \
                        for (size_t i4 = 0; i4 < n[4]; i4++) {                                                         \
                            size_t at_a = i0 * p[0] + i1 * p[1] + i2 * p[2] + i3 * p[3] + i4 * p[4];                   \
                            size_t at_b = i0 * q[0] + i1 * q[1] + i2 * q[2] + i3 * q[3] + i4 * q[4];                   \
                            size_t at_c = i0 * r[0] + i1 * r[1] + i2 * r[2] + i3 * r[3] + i4 * r[4];                   \
                            for (size_t i5 = 0; i5 < n[5]; i5++, i++, at_a += p[5], at_b += q[5], at_c += r[5]) {      \
                                EACH;                                                                                  \
                                (void)at_a, (void)at_b, (void)at_c;                                                    \
                            }                                                                                          \
                        }                                                                                              \
    }

void ap_where_forward(const ap_operands *s, const uint8_t *a, const ap_f32 *b, const ap_f32 *c, ap_f32 *y)
    WALK(y[i] = a[at_a] ? b[at_b] : c[at_c])

void ap_where_backward(const ap_operands *s, const uint8_t *a, const ap_f32 *dy, ap_f32 *db, size_t count_b, ap_f32 *dc,
                       size_t count_c)
{
    if (db) {
        ap_fill(db, 0.0f, count_b);
        WALK(if (a[at_a]) db[at_b] += dy[i])
    }
    if (dc) {
        ap_fill(dc, 0.0f, count_c);
        WALK(if (!a[at_a]) dc[at_c] += dy[i])
    }
}

#define COMPARE(NAME, TYPE)                                                                     \
    void NAME(int kind, const ap_operands *s, const TYPE *a, const TYPE *b, uint8_t *y)         \
    {                                                                                           \
        switch (kind) {                                                                         \
        case AP_EQUAL: WALK(y[i] = a[at_a] == b[at_b]) break;                                   \
        case AP_GREATER: WALK(y[i] = a[at_a] > b[at_b]) break;                                  \
        case AP_GREATER_OR_EQUAL: WALK(y[i] = a[at_a] >= b[at_b]) break;                        \
        case AP_LESS: WALK(y[i] = a[at_a] < b[at_b]) break;                                     \
        case AP_LESS_OR_EQUAL: WALK(y[i] = a[at_a] <= b[at_b]) break;                           \
        case AP_AND: WALK(y[i] = a[at_a] != 0 && b[at_b] != 0) break;                                     \
        default: WALK(y[i] = a[at_a] != 0 || b[at_b] != 0)                                                \
        }                                                                                       \
    }

COMPARE(ap_compare, ap_f32)
COMPARE(ap_compare_int32, int32_t)
COMPARE(ap_compare_int64, int64_t)
COMPARE(ap_compare_uint8, uint8_t)

void ap_not(size_t count, const uint8_t *x, uint8_t *y)
{
    for (size_t i = 0; i < count; i++) y[i] = !x[i];
}

void ap_is_nan(size_t count, const ap_f32 *x, uint8_t *y)
{
    for (size_t i = 0; i < count; i++) y[i] = !(x[i] == x[i]);
}

void ap_prelu_forward(const ap_operands *s, const ap_f32 *x, const ap_f32 *slope, ap_f32 *y)
    WALK(y[i] = x[i] > 0.0f ? x[i] : x[i] * slope[at_b])

void ap_prelu_backward(const ap_operands *s, const ap_f32 *x, const ap_f32 *slope, const ap_f32 *dy, ap_f32 *dx,
                       ap_f32 *dslope, size_t count)
{
    if (dslope) {
        ap_fill(dslope, 0.0f, count);
        WALK(if (!(x[i] > 0.0f)) dslope[at_b] += dy[i] * x[i])
    }
    if (dx) WALK(dx[i] = x[i] > 0.0f ? dy[i] : dy[i] * slope[at_b])
}
