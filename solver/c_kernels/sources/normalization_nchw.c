#include "ap.h"

enum { LANES = 16 };

/* The sum of TERM over i < count in 16 lanes and a tree */
#define SUM_OF(RESULT, COUNT, TERM)                                              \
    {                                                                            \
        ap_f32 lane[LANES] = {0};                                                \
        size_t k = 0;                                                            \
        for (; k + LANES <= (COUNT); k += LANES)                                 \
            for (size_t l = 0, i = k; l < LANES; l++, i++) lane[l] += TERM;      \
        for (size_t l = 0, i = k; i < (COUNT); l++, i++) lane[l] += TERM;        \
        RESULT += ap_tree(lane);                                                 \
    }

static ap_f32 sum_of_channel(const ap_planes *s, const ap_f32 *x, size_t c)
{
    ap_f32 sum = 0.0f;
    for (size_t n = 0; n < s->examples; n++) sum += ap_sum(x + (n * s->channels + c) * s->positions, s->positions);
    return sum;
}

static ap_f32 squares_of_channel(const ap_planes *s, const ap_f32 *x, size_t c, ap_f32 mean)
{
    ap_f32 sum = 0.0f;
    for (size_t n = 0; n < s->examples; n++) {
        const ap_f32 *p = x + (n * s->channels + c) * s->positions;
        SUM_OF(sum, s->positions, (p[i] - mean) * (p[i] - mean))
    }
    return sum;
}

/* The sum of dy (x - mean) */
static ap_f32 products_of_channel(const ap_planes *s, const ap_f32 *x, const ap_f32 *dy, size_t c, ap_f32 mean)
{
    ap_f32 sum = 0.0f;
    for (size_t n = 0; n < s->examples; n++) {
        const ap_f32 *p = x + (n * s->channels + c) * s->positions, *d = dy + (n * s->channels + c) * s->positions;
        SUM_OF(sum, s->positions, d[i] * (p[i] - mean))
    }
    return sum;
}

/* y = (x - mean) factor + shift */
static void affine(const ap_planes *s, const ap_f32 *x, size_t c, ap_f32 mean, ap_f32 factor, ap_f32 shift, ap_f32 *y)
{
    for (size_t n = 0; n < s->examples; n++) {
        const size_t at = (n * s->channels + c) * s->positions;
        for (size_t i = at; i < at + s->positions; i++) y[i] = (x[i] - mean) * factor + shift;
    }
}

void ap_batchnorm_nchw_forward(const ap_planes *s, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *shift,
                               ap_f32 *running_mean, ap_f32 *running_variance, ap_f32 *y, ap_f32 *mean,
                               ap_f32 *inverse_deviation)
{
    const ap_f32 part = 1.0f / (ap_f32)(s->examples * s->positions);
    for (size_t c = 0; c < s->channels; c++) {
        const ap_f32 average = sum_of_channel(s, x, c) * part;
        const ap_f32 variance = squares_of_channel(s, x, c, average) * part;
        const ap_f32 inverse = 1.0f / ap_sqrt(variance + s->epsilon);
        if (running_mean) {
            running_mean[c] = s->momentum * running_mean[c] + (1.0f - s->momentum) * average;
            running_variance[c] = s->momentum * running_variance[c] + s->share * variance;
        }
        mean[c] = average;
        inverse_deviation[c] = inverse;
        affine(s, x, c, average, inverse * scale[c], shift[c], y);
    }
}

void ap_batchnorm_nchw_frozen_forward(const ap_planes *s, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *shift,
                                      const ap_f32 *mean, const ap_f32 *variance, ap_f32 *y)
{
    for (size_t c = 0; c < s->channels; c++)
        affine(s, x, c, mean[c], scale[c] / ap_sqrt(variance[c] + s->epsilon), shift[c], y);
}

void ap_batchnorm_nchw_backward(const ap_planes *s, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *mean,
                                const ap_f32 *inverse_deviation, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dscale,
                                ap_f32 *dshift)
{
    const ap_f32 part = 1.0f / (ap_f32)(s->examples * s->positions);
    for (size_t c = 0; c < s->channels; c++) {
        const ap_f32 first = dx || dshift ? sum_of_channel(s, dy, c) : 0.0f;
        const ap_f32 second = dx || dscale ? products_of_channel(s, x, dy, c, mean[c]) * inverse_deviation[c] : 0.0f;
        if (dshift) dshift[c] = first;
        if (dscale) dscale[c] = second;
        for (size_t n = 0; dx && n < s->examples; n++) {
            const size_t at = (n * s->channels + c) * s->positions;
            for (size_t i = at; i < at + s->positions; i++) {
                const ap_f32 normal = (x[i] - mean[c]) * inverse_deviation[c];
                dx[i] = (dy[i] - part * (first + normal * second)) * (scale[c] * inverse_deviation[c]);
            }
        }
    }
}

void ap_batchnorm_nchw_frozen_backward(const ap_planes *s, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *mean,
                                       const ap_f32 *variance, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dscale,
                                       ap_f32 *dshift)
{
    for (size_t c = 0; c < s->channels; c++) {
        const ap_f32 inverse = dx || dscale ? 1.0f / ap_sqrt(variance[c] + s->epsilon) : 0.0f;
        if (dshift) dshift[c] = sum_of_channel(s, dy, c);
        if (dscale) dscale[c] = products_of_channel(s, x, dy, c, mean[c]) * inverse;
        for (size_t n = 0; dx && n < s->examples; n++) {
            const size_t at = (n * s->channels + c) * s->positions;
            for (size_t i = at; i < at + s->positions; i++) dx[i] = dy[i] * (scale[c] * inverse);
        }
    }
}
