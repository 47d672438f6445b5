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

/* The slope counts on both sides of 0: one that is not finite gives NaN even where X is positive */
void ap_prelu_forward(const ap_operands *s, const ap_f32 *x, const ap_f32 *slope, ap_f32 *y)
    WALK(y[i] = x[i] > 0.0f ? x[i] + 0.0f * slope[at_b] : x[i] * slope[at_b])

void ap_prelu_backward(const ap_operands *s, const ap_f32 *x, const ap_f32 *slope, const ap_f32 *dy, ap_f32 *dx,
                       ap_f32 *dslope, size_t count)
{
    if (dslope) {
        ap_fill(dslope, 0.0f, count);
        WALK(dslope[at_b] += dy[i] * (x[i] > 0.0f ? 0.0f : x[i]))
    }
    if (dx) WALK(dx[i] = x[i] <= 0.0f ? dy[i] * slope[at_b] : dy[i])
}

/* ln x of a positive, finite x: with x = 2^e m, the series of 2 artanh((m - 1) / (m + 1)) */
static double logarithm(double x)
{
    uint64_t bits;
    ap_copy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | (UINT64_C(1023) << 52);
    double m;
    ap_copy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) m *= 0.5, e++;
    const double t = (m - 1.0) / (m + 1.0), square = t * t;
    double sum = 0.0;
    for (int k = 19; k > 0; k -= 2) sum = sum * square + 1.0 / k;
    return 2.0 * t * sum + e * 0.69314718055994531;
}

/* e^z, for |z| below 200 */
static double exponential(double z)
{
    const double half = z < 0.0 ? -0.5 : 0.5;
    const int k = (int)(z * 1.4426950408889634 + half);
    const double r = z - k * 0.69314718055994531;
    double sum = 1.0;
    for (int n = 13; n > 0; n--) sum = sum * r / n + 1.0;
    const uint64_t bits = (uint64_t)(k + 1023) << 52;
    double scale;
    ap_copy(&scale, &bits, sizeof scale);
    return sum * scale;
}

ap_f32 ap_pow(ap_f32 x, ap_f32 y)
{
    if (y == 0.0f || x == 1.0f) return 1.0f;
    if (!(x == x) || !(y == y)) return x + y;
    const int is_whole = y >= 16777216.0f || y <= -16777216.0f || (ap_f32)(int32_t)y == y;
    const int is_odd = y < 16777216.0f && y > -16777216.0f && is_whole && (int32_t)y % 2 != 0;
    uint32_t bits;
    ap_copy(&bits, &x, sizeof bits);
    const ap_f32 size = x < 0.0f ? -x : x, sign = is_odd && bits >> 31 ? -1.0f : 1.0f;
    if (size == 0.0f || size == AP_INFINITY) return sign * ((size == 0.0f) == (y > 0.0f) ? 0.0f : AP_INFINITY);
    if (x < 0.0f && !is_whole) return (x - x) / (x - x);
    if (size == 1.0f) return sign;
    if (y == AP_INFINITY || y == -AP_INFINITY) return (size > 1.0f) == (y > 0.0f) ? AP_INFINITY : 0.0f;
    const double z = (double)y * logarithm(size);
    if (z > 89.0) return sign * AP_INFINITY;
    if (z < -104.0) return sign * 0.0f;
    const double power = exponential(z);
    return sign * (power > 3.4028235677973363e38 ? AP_INFINITY : (ap_f32)power);
}

static ap_f32 exponent(const void *b, size_t bytes, size_t at)
{
    if (bytes == 0) return ((const ap_f32 *)b)[at];
    return bytes == 8 ? (ap_f32)((const int64_t *)b)[at] : (ap_f32)((const int32_t *)b)[at];
}

void ap_pow_forward(const ap_operands *s, const ap_f32 *a, const void *b, size_t bytes, ap_f32 *y)
    WALK(y[i] = ap_pow(a[at_a], exponent(b, bytes, at_b)))

void ap_pow_backward(const ap_operands *s, const ap_f32 *a, const void *b, size_t bytes, const ap_f32 *y,
                     const ap_f32 *dy, ap_f32 *da, size_t count_a, ap_f32 *db, size_t count_b)
{
    if (da) {
        ap_fill(da, 0.0f, count_a);
        WALK(const ap_f32 e = exponent(b, bytes, at_b);
             da[at_a] += ap_pow(a[at_a], e == 0.0f ? 0.0f : e - 1.0f) * e * dy[i])
    }
    if (db) {
        ap_fill(db, 0.0f, count_b);
        WALK(db[at_b] += ap_log(a[at_a] == 0.0f ? 1.0f : a[at_a]) * y[i] * dy[i])
    }
}
