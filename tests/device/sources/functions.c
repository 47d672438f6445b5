/* The largest error of FUNCTION at every stride-th float, in units in the last place, and the float where it is.

   EXACT is the function of the double x, by the C library. Where it is NaN or 0, or infinite as a float, FUNCTION must be
   the same; else the program fails. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ap.h"

/* From one float to the next, where x is */
static double unit(double x)
{
    union { double value; uint64_t bits; } u;
    u.value = x;
    const uint64_t exponent = u.bits >> 52 & 2047u, least = 1023u - 126u;
    u.bits = ((exponent < least ? least : exponent) - 23u) << 52;
    return u.value;
}

int main(int count, char **words)
{
    const uint32_t stride = count > 1 ? (uint32_t)strtoul(words[1], 0, 10) : 1u;
    double largest = 0.0;
    float where = 0.0f;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += stride) {
        union { uint32_t bits; float value; } u;
        u.bits = (uint32_t)bits;
        const double x = (double)u.value, exact = EXACT;
        const float ours = FUNCTION(u.value), rounded = (float)exact;
        if (isnan(exact) || isinf(rounded) || exact == 0.0 || !isfinite(ours)) {
            if (isnan(exact) ? isnan(ours) : ours == rounded && !signbit(ours) == !signbit(rounded)) continue;
            printf("%a gives %a, not %a\n", x, (double)ours, (double)rounded);
            return 1;
        }
        const double error = fabs((double)ours - exact) / unit(exact);
        if (error > largest) {
            largest = error;
            where = u.value;
        }
    }
    printf("%.4f %a\n", largest, (double)where);
    return 0;
}
