/* Elementary functions. They compute in double with polynomials, and round once. */
#include "ap.h"

static double from_bits(uint64_t bits)
{
    union { uint64_t bits; double value; } u;
    u.bits = bits;
    return u.value;
}

static uint64_t to_bits(double value)
{
    union { uint64_t bits; double value; } u;
    u.value = value;
    return u.bits;
}

/* e^x for |x| < 700: x = n ln 2 + r, |r| <= ln 2 / 2, Taylor series of r up to the 11th power */
static double exp64(double x)
{
    const double turns = x * 1.4426950408889634;
    const int32_t n = (int32_t)(turns < 0.0 ? turns - 0.5 : turns + 0.5);
    const double r = (x - (double)n * 0.6931471803691238) - (double)n * 1.9082149292705877e-10;
    double sum = 1.0;
    for (int32_t k = 11; k > 0; k--) sum = 1.0 + sum * r / (double)k;
    return sum * from_bits((uint64_t)(n + 1023) << 52);
}

ap_f32 ap_exp(ap_f32 x)
{
    if (!(x == x)) return x;
    if (x > 89.0f) return (ap_f32)from_bits(UINT64_C(0x7ff) << 52);
    if (x < -104.0f) return 0.0f;
    return (ap_f32)exp64((double)x);
}

/* ln x for normal x > 0: x = 2^e m, sqrt(1/2) <= m < sqrt(2), and 2 artanh((m - 1) / (m + 1)) */
static double log64(double x)
{
    const uint64_t bits = to_bits(x);
    int32_t e = (int32_t)(bits >> 52) - 1023;
    double m = from_bits((bits & UINT64_C(0xfffffffffffff)) | (UINT64_C(1023) << 52));
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e += 1;
    }
    const double s = (m - 1.0) / (m + 1.0), square = s * s;
    double sum = 0.0;
    for (int32_t k = 19; k > 0; k -= 2) sum = sum * square + 1.0 / (double)k;
    return 2.0 * s * sum + (double)e * 0.6931471805599453;
}

ap_f32 ap_log(ap_f32 x)
{
    if (!(x == x)) return x;
    if (x < 0.0f) return (ap_f32)from_bits(UINT64_C(0x7ff8) << 48);
    if (x == 0.0f) return -(ap_f32)from_bits(UINT64_C(0x7ff) << 52);
    if (x > FLT_MAX) return x;
    return (ap_f32)log64((double)x);
}

ap_f32 ap_expm1(ap_f32 x)
{
    if (!(x == x)) return x;
    if (x > 89.0f) return (ap_f32)from_bits(UINT64_C(0x7ff) << 52);
    if (x < -104.0f) return -1.0f;
    if (x == 0.0f) return x;
    const double d = (double)x;
    if (d < 1e-4 && d > -1e-4) return (ap_f32)(d + d * d * (0.5 + d * (1.0 / 6.0)));
    return (ap_f32)(exp64(d) - 1.0);
}

ap_f32 ap_softplus(ap_f32 x)
{
    if (!(x == x) || x > 40.0f) return x;
    if (x < -104.0f) return 0.0f;
    const double power = exp64((double)x);
    if (power < 1e-4) return (ap_f32)(power * (1.0 - power * (0.5 - power * (1.0 / 3.0))));
    return (ap_f32)log64(1.0 + power);
}

ap_f32 ap_tanh(ap_f32 x)
{
    if (!(x == x)) return x;
    const double d = (double)x, square = d * d;
    if (d > 10.0) return 1.0f;
    if (d < -10.0) return -1.0f;
    if (square < 0.0025) return (ap_f32)(d * (1.0 - square * (1.0 / 3.0 - square * (2.0 / 15.0 - square * (17.0 / 315.0)))));
    const double power = exp64(2.0 * d);
    return (ap_f32)((power - 1.0) / (power + 1.0));
}

ap_f32 ap_sigmoid(ap_f32 x)
{
    if (!(x == x)) return x;
    if (x < -104.0f) return 0.0f;
    if (x > 40.0f) return 1.0f;
    return (ap_f32)(1.0 / (1.0 + exp64(-(double)x)));
}

/* 2 / sqrt(pi) e^(-x^2) times the sum over n of 2^n x^(2n+1) / (1 3 5 ... (2n+1)), whose terms are all positive */
ap_f32 ap_erf(ap_f32 x)
{
    if (!(x == x)) return x;
    const double d = (double)x, square = d * d;
    if (d > 4.0) return 1.0f;
    if (d < -4.0) return -1.0f;
    const int32_t terms = square < 0.25 ? 12 : square < 1.0 ? 18 : square < 4.0 ? 32 : 64;
    double sum = 1.0;
    for (int32_t n = terms; n > 0; n--) sum = 1.0 + sum * (2.0 * square / (double)(2 * n + 1));
    return (ap_f32)(1.1283791670955126 * d * exp64(-square) * sum);
}

#if defined(__GNUC__) && !defined(AP_SOFT_ROOT) && defined(__SSE__)
#include <xmmintrin.h>
static ap_f32 root_of(ap_f32 x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
#elif defined(__GNUC__) && !defined(AP_SOFT_ROOT) && defined(__aarch64__)
static ap_f32 root_of(ap_f32 x)
{
    ap_f32 root;
    __asm__("fsqrt %s0, %s1" : "=w"(root) : "w"(x));
    return root;
}
#elif defined(__GNUC__) && !defined(AP_SOFT_ROOT) && defined(__ARM_FP) && (__ARM_FP & 4)
static ap_f32 root_of(ap_f32 x)
{
    ap_f32 root;
    __asm__("vsqrt.f32 %0, %1" : "=t"(root) : "t"(x));
    return root;
}
#else
/* The root of x = m 4^e for 2^24 <= m < 2^26, bit by bit: 13 bits before the point, 12 behind it */
static ap_f32 root_of(ap_f32 x)
{
    union { uint32_t bits; ap_f32 value; } u;
    u.value = x;
    int32_t e = (int32_t)(u.bits >> 23);
    uint32_t m = u.bits & 0x7fffffu;
    if (e == 0) {
        e = 1;
        while (!(m & 0x800000u)) {
            m <<= 1;
            e -= 1;
        }
    } else
        m |= 0x800000u;
    e -= 127;
    if (e & 1) {
        m <<= 1;
        e -= 1;
    }
    uint64_t rest = (uint64_t)m << 25, root = 0;
    for (uint64_t bit = UINT64_C(1) << 48; bit; bit >>= 2) {
        if (rest >= root + bit) {
            rest -= root + bit;
            root = (root >> 1) + bit;
        } else
            root >>= 1;
    }
    /* The root has one bit more than is kept; it is never exactly halfway between two floats. */
    const uint32_t kept = (uint32_t)(root >> 1) + (uint32_t)(root & 1);
    u.bits = (uint32_t)((e / 2 + 126) << 23) + kept;
    return u.value;
}
#endif

ap_f32 ap_sqrt(ap_f32 x)
{
    if (!(x == x) || x == 0.0f || x > FLT_MAX) return x;
    if (x < 0.0f) return (ap_f32)from_bits(UINT64_C(0x7ff8) << 48);
    return root_of(x);
}

/* Newton's steps from a power of two, which double the digits; x >= 0 and normal, or 0 */
double ap_sqrt64(double x)
{
    if (!(x > 0.0) || x > DBL_MAX) return x;
    double root = from_bits((((to_bits(x) >> 52) - 1023) / 2 + 1023) << 52);
    if (x < 1.0) root = from_bits((uint64_t)(1023 - (1023 - (int64_t)(to_bits(x) >> 52)) / 2) << 52);
    for (int32_t k = 0; k < 8; k++) root = 0.5 * (root + x / root);
    return root;
}

double ap_power(double x, uint32_t n)
{
    double power = 1.0;
    for (; n; n >>= 1) {
        if (n & 1u) power *= x;
        x *= x;
    }
    return power;
}

/* Activations are loops without branches inside, which compilers make vectors of. NaN stays, and zeros lose their sign. */
void ap_activate(int activation, ap_f32 *y, size_t count)
{
    const ap_f32 most = activation == AP_RELU6 ? 6.0f : AP_INFINITY;
    if (activation == AP_RELU || activation == AP_RELU6)
        for (size_t i = 0; i < count; i++) {
            const ap_f32 v = y[i] <= 0.0f ? 0.0f : y[i];
            y[i] = v > most ? most : v;
        }
    if (activation == AP_SIGMOID)
        for (size_t i = 0; i < count; i++) y[i] = ap_sigmoid(y[i]);
    if (activation == AP_TANH)
        for (size_t i = 0; i < count; i++) y[i] = ap_tanh(y[i]);
}

void ap_deactivate(int activation, const ap_f32 *y, const ap_f32 *dy, ap_f32 *dz, size_t count)
{
    switch (activation) {
    case AP_RELU:
        for (size_t i = 0; i < count; i++) {
            const ap_f32 d = dy[i];
            dz[i] = y[i] > 0.0f ? d : 0.0f;
        }
        break;
    case AP_RELU6:
        for (size_t i = 0; i < count; i++) {
            const ap_f32 d = dy[i], below = y[i] < 6.0f ? d : 0.0f;
            dz[i] = y[i] > 0.0f ? below : 0.0f;
        }
        break;
    case AP_SIGMOID:
        for (size_t i = 0; i < count; i++) dz[i] = dy[i] * (y[i] * (1.0f - y[i]));
        break;
    case AP_TANH:
        for (size_t i = 0; i < count; i++) dz[i] = dy[i] * (1.0f - y[i] * y[i]);
        break;
    default:
        for (size_t i = 0; i < count; i++) dz[i] = dy[i];
    }
}
