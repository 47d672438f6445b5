#include "ap.h"

/* The first and the end of the kernel's taps whose input lies in [0, size): input = start + tap * dilation */
static void taps(ptrdiff_t start, size_t dilation, size_t kernel, size_t size, size_t *first, size_t *end)
{
    size_t from = 0;
    while (from < kernel && start + (ptrdiff_t)(from * dilation) < 0) from++;
    size_t to = from;
    while (to < kernel && start + (ptrdiff_t)(to * dilation) < (ptrdiff_t)size) to++;
    *first = from;
    *end = to;
}

/* Whether one row of the kernel reads neighbouring pixels of all channels, so that it is one run of memory */
static int in_runs(const ap_conv *s) { return s->groups == 1 && s->dilation_wide == 1; }

/* Where no tap of a row of outputs is outside, several outputs are one product: these are [first, end) */
static void inner_columns(const ap_conv *s, size_t *first, size_t *end)
{
    size_t from = 0;
    while (from < s->out_wide && from * s->stride_wide < s->left) from++;
    size_t to = from;
    while (to < s->out_wide && to * s->stride_wide + s->kernel_wide <= s->wide + s->left) to++;
    *first = from;
    *end = to;
}

/* y of one output pixel: taps in order, channels inside, a chain for each filter; `w` is [taps, channels, filters] */
static void one_pixel(const ap_conv *s, const ap_f32 *image, const ap_f32 *w, size_t oy, size_t ox, ap_f32 *y)
{
    const ptrdiff_t y0 = (ptrdiff_t)(oy * s->stride_high) - (ptrdiff_t)s->top;
    const ptrdiff_t x0 = (ptrdiff_t)(ox * s->stride_wide) - (ptrdiff_t)s->left;
    const size_t in = s->channels / s->groups, out = s->filters / s->groups;
    size_t ky0, ky1, kx0, kx1;
    taps(y0, s->dilation_high, s->kernel_high, s->high, &ky0, &ky1);
    taps(x0, s->dilation_wide, s->kernel_wide, s->wide, &kx0, &kx1);
    ap_fill(y, 0.0f, s->filters);
    for (size_t ky = ky0; ky < ky1; ky++)
        for (size_t kx = kx0; kx < kx1; kx++) {
            const size_t row = (size_t)(y0 + (ptrdiff_t)(ky * s->dilation_high));
            const size_t column = (size_t)(x0 + (ptrdiff_t)(kx * s->dilation_wide));
            const ap_f32 *from = image + (row * s->wide + column) * s->channels;
            const ap_f32 *tap = w + (ky * s->kernel_wide + kx) * in * s->filters;
            if (in == 1 && out == 1)
                for (size_t f = 0; f < s->filters; f++) y[f] += from[f] * tap[f];
            else
                for (size_t c = 0; c < in; c++)
                    for (size_t g = 0; g < s->groups; g++) {
                        const ap_f32 value = from[g * in + c];
                        const ap_f32 *v = tap + c * s->filters + g * out;
                        for (size_t f = 0; f < out; f++) y[g * out + f] += value * v[f];
                    }
        }
}

/* Every element of y is one chain over the taps inside the image in the order of the kernel's memory. `work` holds the
   weights as [taps, channels, filters]. */
void ap_conv_forward(const ap_conv *s, int activation, const ap_f32 *x, const ap_f32 *w, const ap_f32 *bias,
                     ap_f32 *y, ap_f32 *work)
{
    const size_t size = s->kernel_high * s->kernel_wide * (s->channels / s->groups);
    for (size_t f = 0; f < s->filters; f++)
        for (size_t i = 0; i < size; i++) work[i * s->filters + f] = w[f * size + i];
    size_t first = 0, end = 0;
    if (in_runs(s)) inner_columns(s, &first, &end);
    const size_t run = s->kernel_wide * s->channels;
    for (size_t n = 0; n < s->examples; n++) {
        const ap_f32 *image = x + n * s->high * s->wide * s->channels;
        for (size_t oy = 0; oy < s->out_high; oy++) {
            ap_f32 *row = y + ((n * s->out_high + oy) * s->out_wide) * s->filters;
            for (size_t ox = 0; ox < s->out_wide; ox++)
                if (ox < first || ox >= end) one_pixel(s, image, work, oy, ox, row + ox * s->filters);
            if (end > first) {
                const ptrdiff_t y0 = (ptrdiff_t)(oy * s->stride_high) - (ptrdiff_t)s->top;
                size_t ky0, ky1;
                taps(y0, s->dilation_high, s->kernel_high, s->high, &ky0, &ky1);
                const size_t above = (size_t)(y0 + (ptrdiff_t)(ky0 * s->dilation_high));
                const ap_f32 *from = image + (above * s->wide + first * s->stride_wide - s->left) * s->channels;
                ap_product(end - first, s->filters, from, s->dilation_high * s->wide * s->channels,
                           s->stride_wide * s->channels, 1, ky1 - ky0, run, work + ky0 * run * s->filters, s->filters,
                           row + first * s->filters, s->filters, AP_SET);
            }
            for (size_t ox = 0; bias && ox < s->out_wide; ox++)
                for (size_t f = 0; f < s->filters; f++) row[ox * s->filters + f] += bias[f];
            ap_activate(activation, row, s->out_wide * s->filters);
        }
    }
}

/* The row of x, and the column for output `first`, that tap (ky, kx) reads for outputs [first, end) of row oy. Returns
   whether there is one. */
static int reached(const ap_conv *s, size_t oy, size_t ky, size_t kx, size_t *row, size_t *column, size_t *first, size_t *end)
{
    const size_t down = oy * s->stride_high + ky * s->dilation_high, right = kx * s->dilation_wide;
    if (down < s->top || down - s->top >= s->high) return 0;
    size_t from = 0;
    while (from < s->out_wide && from * s->stride_wide + right < s->left) from++;
    size_t to = from;
    while (to < s->out_wide && to * s->stride_wide + right < s->wide + s->left) to++;
    if (to == from) return 0;
    *row = down - s->top;
    *column = from * s->stride_wide + right - s->left;
    *first = from;
    *end = to;
    return 1;
}

/* The derivatives of one row of outputs before the activation; `row` has room for them where there is one */
static const ap_f32 *before_activation(const ap_conv *s, int activation, const ap_f32 *y, const ap_f32 *dy, size_t n,
                                       size_t oy, ap_f32 *row)
{
    const size_t count = s->out_wide * s->filters, at = (n * s->out_high + oy) * count;
    if (activation == AP_NONE) return dy + at;
    ap_deactivate(activation, y + at, dy + at, row, count);
    return row;
}

/* dx: for each row of outputs and each tap, in order of memory, a product over the filters of the pixels it reaches */
void ap_conv_backward_x(const ap_conv *s, int activation, const ap_f32 *w, const ap_f32 *y, const ap_f32 *dy,
                        ap_f32 *dx, ap_f32 *work)
{
    const size_t in = s->channels / s->groups, out = s->filters / s->groups;
    const size_t size = s->kernel_high * s->kernel_wide * in, jump = s->stride_wide * s->channels;
    ap_fill(dx, 0.0f, s->examples * s->high * s->wide * s->channels);
    for (size_t n = 0; n < s->examples; n++)
        for (size_t oy = 0; oy < s->out_high; oy++) {
            const ap_f32 *dz = before_activation(s, activation, y, dy, n, oy, work);
            for (size_t ky = 0; ky < s->kernel_high; ky++)
                for (size_t kx = 0; kx < s->kernel_wide; kx++) {
                    size_t row, column, first, end;
                    if (!reached(s, oy, ky, kx, &row, &column, &first, &end)) continue;
                    ap_f32 *to = dx + ((n * s->high + row) * s->wide + column) * s->channels;
                    const ap_f32 *d = dz + first * s->filters;
                    const ap_f32 *tap = w + (ky * s->kernel_wide + kx) * in;
                    if (s->groups == 1)
                        ap_product(end - first, in, d, 0, s->filters, 1, 1, s->filters, tap, size, to, jump, AP_ADD);
                    else
                        for (size_t ox = first; ox < end; ox++, to += jump, d += s->filters)
                            for (size_t f = 0; f < s->filters; f++)
                                for (size_t c = 0; c < in; c++) to[f / out * in + c] += d[f] * tap[f * size + c];
                }
        }
}

/* dw: for each row of outputs and each tap, in order of memory, a product over the pixels that it reaches; dbias: row by
   row. */
void ap_conv_backward_w(const ap_conv *s, int activation, const ap_f32 *x, const ap_f32 *y, const ap_f32 *dy,
                        ap_f32 *dw, ap_f32 *dbias, ap_f32 *work)
{
    const size_t in = s->channels / s->groups, out = s->filters / s->groups;
    const size_t size = s->kernel_high * s->kernel_wide * in, jump = s->stride_wide * s->channels;
    ap_f32 *row_before = work, *sums = work + (activation == AP_NONE ? 0 : s->out_wide * s->filters);
    if (dw) ap_fill(sums, 0.0f, size * s->filters);
    if (dbias) ap_fill(dbias, 0.0f, s->filters);
    for (size_t n = 0; n < s->examples; n++)
        for (size_t oy = 0; oy < s->out_high; oy++) {
            const ap_f32 *dz = before_activation(s, activation, y, dy, n, oy, row_before);
            if (dbias) ap_add_rows(s->out_wide, s->filters, dz, dbias);
            if (!dw) continue;
            for (size_t ky = 0; ky < s->kernel_high; ky++)
                for (size_t kx = 0; kx < s->kernel_wide; kx++) {
                    size_t row, column, first, end;
                    if (!reached(s, oy, ky, kx, &row, &column, &first, &end)) continue;
                    ap_f32 *tap = sums + (ky * s->kernel_wide + kx) * in * s->filters;
                    const ap_f32 *from = x + ((n * s->high + row) * s->wide + column) * s->channels;
                    const ap_f32 *d = dz + first * s->filters;
                    if (s->groups == 1)
                        ap_product(in, s->filters, from, 0, 1, jump, 1, end - first, d, s->filters, tap, s->filters,
                                   AP_ADD);
                    else
                        for (size_t ox = first; ox < end; ox++, from += jump, d += s->filters)
                            for (size_t c = 0; c < in; c++)
                                for (size_t f = 0; f < s->filters; f++)
                                    tap[c * s->filters + f] += from[f / out * in + c] * d[f];
                }
        }
    if (!dw) return;
    for (size_t f = 0; f < s->filters; f++)
        for (size_t i = 0; i < size; i++) dw[f * size + i] = sums[i * s->filters + f];
}

/* y is what backward_x makes of x: `s` is the convolution from y to x. Then the bias. */
void ap_conv_transpose_forward(const ap_conv *s, const ap_f32 *x, const ap_f32 *w, const ap_f32 *bias, ap_f32 *y)
{
    ap_conv_backward_x(s, AP_NONE, w, 0, x, y, 0);
    if (bias)
        for (size_t i = 0; i < s->examples * s->high * s->wide; i++)
            for (size_t c = 0; c < s->channels; c++) y[i * s->channels + c] += bias[c];
}
