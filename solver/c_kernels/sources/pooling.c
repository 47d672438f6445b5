#include "ap.h"

/* Calls EACH for every output pixel with its windows's taps inside the image: `from` is the pixel of x */
#define AP_TAPS(EACH)                                                                                              \
    for (size_t ky = 0; ky < s->kernel_high; ky++)                                                                 \
        for (size_t kx = 0; kx < s->kernel_wide; kx++) {                                                           \
            const size_t down = oy * s->stride_high + ky * s->dilation_high;                                       \
            const size_t right = ox * s->stride_wide + kx * s->dilation_wide;                                      \
            if (down < s->top || down - s->top >= s->high || right < s->left || right - s->left >= s->wide) continue; \
            const size_t pixel = (((n * s->high + down - s->top) * s->wide) + right - s->left) * s->channels;      \
            EACH;                                                                                                  \
        }

#define AP_PIXELS                                                                                                  \
    for (size_t n = 0, o = 0; n < s->examples; n++)                                                                \
        for (size_t oy = 0; oy < s->out_high; oy++)                                                                \
            for (size_t ox = 0; ox < s->out_wide; ox++, o += s->channels)

void ap_maxpool_forward(const ap_pool *s, const ap_f32 *x, ap_f32 *y, uint8_t *taken)
{
    AP_PIXELS
    {
        int none = 1;
        AP_TAPS(
            const uint8_t tap = (uint8_t)((s->kernel_high - ky) * s->kernel_wide - kx);
            for (size_t c = 0; c < s->channels; c++) {
                const ap_f32 v = x[pixel + c];
                if (none || v > y[o + c] || (!(v == v) && y[o + c] == y[o + c])) {
                    y[o + c] = v;
                    if (taken) taken[o + c] = v == v ? tap : 0;
                }
            }
            none = 0)
        if (none) { /* padding alone */
            ap_fill(y + o, -AP_INFINITY, s->channels);
            for (size_t c = 0; taken && c < s->channels; c++) taken[o + c] = 0;
        }
    }
}

void ap_maxpool_backward(const ap_pool *s, const uint8_t *taken, const ap_f32 *dy, ap_f32 *dx)
{
    ap_fill(dx, 0.0f, s->examples * s->high * s->wide * s->channels);
    AP_PIXELS AP_TAPS(
        const uint8_t tap = (uint8_t)((s->kernel_high - ky) * s->kernel_wide - kx);
        for (size_t c = 0; c < s->channels; c++)
            dx[pixel + c] += (taken[o + c] == tap ? 1.0f : 0.0f) * dy[o + c])
}

/* One over the number of elements of a window */
static ap_f32 share(const ap_pool *s, size_t oy, size_t ox)
{
    size_t high = 0, wide = 0;
    for (size_t ky = 0; ky < s->kernel_high; ky++) {
        const size_t down = oy * s->stride_high + ky * s->dilation_high;
        high += s->counts_padding ? down < s->top + s->high + s->bottom : down >= s->top && down - s->top < s->high;
    }
    for (size_t kx = 0; kx < s->kernel_wide; kx++) {
        const size_t right = ox * s->stride_wide + kx * s->dilation_wide;
        wide += s->counts_padding ? right < s->left + s->wide + s->right : right >= s->left && right - s->left < s->wide;
    }
    return 1.0f / (ap_f32)(high * wide);
}

void ap_meanpool_forward(const ap_pool *s, const ap_f32 *x, ap_f32 *y)
{
    AP_PIXELS
    {
        const ap_f32 part = share(s, oy, ox);
        ap_fill(y + o, 0.0f, s->channels);
        AP_TAPS(for (size_t c = 0; c < s->channels; c++) y[o + c] += x[pixel + c])
        for (size_t c = 0; c < s->channels; c++) y[o + c] *= part;
    }
}

void ap_meanpool_backward(const ap_pool *s, const ap_f32 *dy, ap_f32 *dx)
{
    ap_fill(dx, 0.0f, s->examples * s->high * s->wide * s->channels);
    AP_PIXELS
    {
        const ap_f32 part = share(s, oy, ox);
        AP_TAPS(for (size_t c = 0; c < s->channels; c++) dx[pixel + c] += dy[o + c] * part)
    }
}
