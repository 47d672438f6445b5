/* Elementary functions, computed with floats and integers alone: many processors have no doubles. ap.h states their
   errors. */
#include "ap.h"

static ap_f32 from_bits(uint32_t bits)
{
    union { uint32_t bits; ap_f32 value; } u;
    u.bits = bits;
    return u.value;
}

static uint32_t to_bits(ap_f32 value)
{
    union { uint32_t bits; ap_f32 value; } u;
    u.value = value;
    return u.bits;
}

static ap_f32 with_sign_of(ap_f32 x, ap_f32 size)
{
    return from_bits((to_bits(x) & 0x80000000u) | (to_bits(size) & 0x7fffffffu));
}

/* ln 2 in two parts: the first has 15 bits, so that its product with any exponent is exact (Cody and Waite 1980) */
#define LN2_HIGH 0x1.62e4p-1f
#define LN2_LOW 0x1.7f7d1cp-20f

/* (high + low) 2^exponent, where high is the sum rounded; the exponent is modulo 2^32 */
typedef struct {
    ap_f32 high, low;
    uint32_t exponent;
} power;

/* e^x for -105 <= x <= 90, or NaN. x = n ln 2 + r + rest with |r| < 0.35, and e^r = 1 + r + r^2 q(r), where q is a minimax
   polynomial of degree 4. Adding 1.5 * 2^23 rounds to an integer, which the low bits then are. */
static power power_of(ap_f32 x)
{
    const ap_f32 shift = 12582912.0f, shifted = x * 0x1.715476p+0f + shift, n = shifted - shift;
    const ap_f32 a = x - n * LN2_HIGH, b = n * LN2_LOW, r = a - b, rest = (a - r) - b;
    const ap_f32 q =
        0.5f + r * (0x1.55549p-3f + r * (0x1.5554d2p-5f + r * (0x1.123ab6p-7f + r * 0x1.6d660cp-10f)));
    const ap_f32 sum = 1.0f + r, lost = (r - (sum - 1.0f)) + (rest + r * r * q);
    power p;
    p.high = sum + lost;
    p.low = lost - (p.high - sum);
    p.exponent = to_bits(shifted) - to_bits(shift);
    return p;
}

/* x 2^exponent in two steps, the first of which is exact: the result may be infinite or subnormal */
static ap_f32 scaled(ap_f32 x, uint32_t exponent)
{
    const uint32_t biased = exponent + 254u, half = biased >> 1;
    return x * from_bits(half << 23) * from_bits((biased - half) << 23);
}

/* e^x in two floats */
static ap_f32 exp_in_two(ap_f32 x, ap_f32 *low)
{
    x = x > 90.0f ? 90.0f : x;
    const power p = power_of(x < -105.0f ? -105.0f : x);
    *low = scaled(p.low, p.exponent);
    return scaled(p.high, p.exponent);
}

ap_f32 ap_exp(ap_f32 x)
{
    ap_f32 low;
    return exp_in_two(x, &low);
}

/* x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); with s = f / (2 + f), ln(1 + f) = f - f^2 / 2 + s (f^2 / 2 + r(s^2)),
   where r is a minimax polynomial */
ap_f32 ap_log(ap_f32 x)
{
    if (!(x > 0.0f)) return x == 0.0f ? -AP_INFINITY : from_bits(0x7fc00000u);
    if (x > FLT_MAX) return x;
    const int is_small = x < FLT_MIN;
    const uint32_t root = to_bits(0x1.6a09e6p-1f), bits = to_bits(is_small ? x * 8388608.0f : x) + 0x3f800000u - root;
    const ap_f32 n = (ap_f32)((int32_t)(bits >> 23) - (is_small ? 150 : 127));
    const ap_f32 f = from_bits((bits & 0x7fffffu) + root) - 1.0f;
    const ap_f32 s = f / (2.0f + f), square = s * s, half = 0.5f * f * f;
    const ap_f32 r = square * (0x1.55557ap-1f + square * (0x1.995ed6p-2f + square * 0x1.31e08p-2f));
    return n * LN2_HIGH + (f - (half - (s * (half + r) + n * LN2_LOW)));
}

ap_f32 ap_expm1(ap_f32 x)
{
    ap_f32 low;
    const ap_f32 high = exp_in_two(x, &low), less = high - 1.0f;
    return with_sign_of(x, less + (high > 1.0f ? low : (high - (less + 1.0f)) + low));
}

/* max(x, 0) + ln(1 + e^-|x|), and the logarithm's first derivative for what the sum loses */
ap_f32 ap_softplus(ap_f32 x)
{
    ap_f32 low;
    const ap_f32 high = exp_in_two(x > 0.0f ? -x : x, &low);
    const ap_f32 sum = 1.0f + high, rest = (high - (sum - 1.0f)) + low;
    return (ap_log(sum) + rest / sum) + (x > 0.0f ? x : 0.0f);
}

/* (1 - e^-2|x|) / (1 + e^-2|x|), both in two floats, and the first derivative of the quotient for their low ones */
ap_f32 ap_tanh(ap_f32 x)
{
    ap_f32 low;
    const ap_f32 high = exp_in_two(-2.0f * with_sign_of(1.0f, x), &low), less = high - 1.0f;
    const ap_f32 lost = (high - (less + 1.0f)) + low, a = less + lost, a_low = lost - (a - less);
    const ap_f32 b = 2.0f + a, b_low = (a - (b - 2.0f)) + a_low, quotient = a / b;
    return with_sign_of(x, quotient + (a_low - quotient * b_low) / b);
}

/* e^x / (1 + e^x) for x < 0, else 1 / (1 + e^-x), as tanh */
ap_f32 ap_sigmoid(ap_f32 x)
{
    ap_f32 low;
    const ap_f32 high = exp_in_two(x < 0.0f ? x : -x, &low);
    const ap_f32 sum = 1.0f + high, rest = (high - (sum - 1.0f)) + low;
    const ap_f32 quotient = (x < 0.0f ? high : 1.0f) / sum;
    return quotient + ((x < 0.0f ? low : 0.0f) - quotient * rest) / sum;
}

/* x + x p(x^2) for |x| < 7/8, else 1 - e^(|x| q(|x|)), where p and q are minimax polynomials */
ap_f32 ap_erf(ap_f32 x)
{
    const ap_f32 size = with_sign_of(1.0f, x), s = x * x;
    if (size < 0.875f) {
        ap_f32 p = -0x1.a4c29p-11f + s * 0x1.49af3ap-14f;
        p = -0x1.812740p-2f + s * (0x1.ce2d5cp-4f + s * (-0x1.b7ff8ap-6f + s * (0x1.5430c6p-8f + s * p)));
        return x + x * (0x1.06eba8p-3f + s * p);
    }
    ap_f32 q = 0x1.778fc2p-6f + size * (-0x1.a6ba34p-9f + size * 0x1.c35e8cp-13f);
    q = -0x1.20e70cp+0f + size * (-0x1.4577e6p-1f + size * (-0x1.af5bd4p-4f + size * q));
    return with_sign_of(x, 1.0f - ap_exp(size > 4.0f ? -18.0f : size * q));
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
    if (x < 0.0f) return from_bits(0x7fc00000u);
    return root_of(x);
}
