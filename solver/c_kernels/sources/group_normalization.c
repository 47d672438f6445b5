#include "ap.h"

/* Sums over a row, and over the elements of a channel, are chains in the order of the row's axes; rows in their order. */

/* Calls EACH for the elements of a row that begins at element `at`: i is the element, c its channel */
#define ELEMENTS(EACH)                                                                          \
    for (size_t a = 0; a < s->outer; a++)                                                       \
        for (size_t b = 0, i = at + a * s->outer_step; b < s->inner; b++, i += s->inner_step) { \
            const size_t c = channel + (s->channels_outside ? a : b);                           \
            EACH;                                                                               \
            (void)c;                                                                            \
        }

/* For each row: its number, its first element and first channel */
#define ROWS                                                                                                 \
    for (size_t row = 0; row < s->examples * s->groups; row++) {                                             \
        const size_t at = row / s->groups * s->example_step + row % s->groups * s->group_step;               \
        const size_t channel = row % s->groups * (s->channels_outside ? s->outer : s->inner);

void ap_groupnorm_forward(const ap_groups *s, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *shift, ap_f32 *y,
                          ap_f32 *mean, ap_f32 *inverse_deviation)
{
    const ap_f32 part = 1.0f / (ap_f32)(s->outer * s->inner);
    ROWS
        ap_f32 average = 0.0f, sum = 0.0f;
        if (s->centred) ELEMENTS(average += x[i])
        average *= part;
        ELEMENTS(sum += (x[i] - average) * (x[i] - average))
        const ap_f32 inverse = 1.0f / ap_sqrt(sum * part + s->epsilon);
        ELEMENTS(const ap_f32 scaled = (x[i] - average) * inverse * scale[c]; y[i] = shift ? scaled + shift[c] : scaled)
        if (mean) mean[row] = average;
        if (inverse_deviation) inverse_deviation[row] = inverse;
    }
}

void ap_groupnorm_backward(const ap_groups *s, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *mean,
                           const ap_f32 *inverse_deviation, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dscale,
                           ap_f32 *dshift)
{
    const ap_f32 part = 1.0f / (ap_f32)(s->outer * s->inner);
    const size_t channels = s->groups * (s->channels_outside ? s->outer : s->inner);
    if (dscale) ap_fill(dscale, 0.0f, channels);
    if (dshift) ap_fill(dshift, 0.0f, channels);
    ROWS
        const ap_f32 average = mean ? mean[row] : 0.0f, inverse = inverse_deviation ? inverse_deviation[row] : 0.0f;
        if (dscale) ELEMENTS(dscale[c] += dy[i] * ((x[i] - average) * inverse))
        if (dshift) ELEMENTS(dshift[c] += dy[i])
        if (!dx) continue;
        ap_f32 first = 0.0f, second = 0.0f;
        ELEMENTS(const ap_f32 g = dy[i] * scale[c]; first += g; second += g * ((x[i] - average) * inverse))
        if (!s->centred) first = 0.0f;
        ELEMENTS(const ap_f32 normal = (x[i] - average) * inverse;
                 dx[i] = (dy[i] * scale[c] - part * (first + normal * second)) * inverse)
    }
}
