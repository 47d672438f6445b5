/* The largest error of FUNCTION at every stride-th float, in units in the last place, and the float where it is.

   EXACT is the function of the double x, by the C library. Where it is NaN or 0, or infinite as a float, FUNCTION must be
   the same; else the program fails. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ap.h"

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
        int exponent;
        (void)frexp(exact, &exponent);
        const double error = fabs((double)ours - exact) / ldexp(1.0, exponent < -125 ? -149 : exponent - 24);
        if (error > largest) {
            largest = error;
            where = u.value;
        }
    }
    printf("%.4f %a\n", largest, (double)where);
    return 0;
}
