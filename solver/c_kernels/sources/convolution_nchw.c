#include "ap.h"

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* The first output of a row whose tap, `right` elements behind its start, is at `edge` or behind it */
static size_t first_at(size_t edge, size_t right, size_t stride, size_t out)
{
    return edge > right ? least((edge - right + stride - 1) / stride, out) : 0;
}

/* Whether each output reads one pixel, and the images of input and output are one size */
static int is_pointwise(const ap_conv *s)
{
    return s->kernel_high == 1 && s->kernel_wide == 1 && s->stride_high == 1 && s->stride_wide == 1 && s->top == 0 &&
           s->left == 0 && s->out_high == s->high && s->out_wide == s->wide;
}

/* What the taps of outputs [first, first + count) read of one group's channels: tap t of output p goes to
   to[t * to_tap + p * to_output]. */
static void read_taps(const ap_conv *s, const ap_f32 *x, size_t first, size_t count, ap_f32 *to, size_t to_tap,
                      size_t to_output)
{
    const size_t channels = s->channels / s->groups, taps = s->kernel_high * s->kernel_wide;
    const size_t stride = s->stride_wide, plane = s->high * s->wide;
    for (size_t tap = 0; tap < taps; tap++) {
        const size_t right = tap % s->kernel_wide * s->dilation_wide;
        const size_t begin = first_at(s->left, right, stride, s->out_wide);
        const size_t end = first_at(s->left + s->wide, right, stride, s->out_wide);
        for (size_t p = 0, run; p < count; p += run) {
            const size_t oy = (first + p) / s->out_wide, ox = (first + p) % s->out_wide;
            const size_t down = oy * s->stride_high + tap / s->kernel_wide * s->dilation_high;
            const int is_inside = down >= s->top && down - s->top < s->high;
            run = least(s->out_wide - ox, count - p);
            const size_t from = is_inside && begin > ox ? least(begin - ox, run) : 0;
            const size_t until = is_inside && end > ox ? least(end - ox, run) : 0;
            for (size_t c = 0; c < channels; c++) {
                ap_f32 *t = to + (c * taps + tap) * to_tap + p * to_output;
                size_t i = 0;
                for (; i < from; i++) t[i * to_output] = 0.0f;
                if (i < until) {
                    const ap_f32 *f = x + c * plane + (down - s->top) * s->wide + ((ox + i) * stride + right - s->left);
                    for (; i < until; i++, f += stride) t[i * to_output] = *f;
                }
                for (; i < run; i++) t[i * to_output] = 0.0f;
            }
        }
    }
}

/* The way back: element [p][t] of `from` is added to what tap t of output `first` + p reads; outputs in their order */
static void add_taps(const ap_conv *s, const ap_f32 *from, size_t first, size_t count, ap_f32 *x)
{
    const size_t channels = s->channels / s->groups;
    for (size_t p = first; p < first + count; p++) {
        const size_t y0 = p / s->out_wide * s->stride_high, x0 = p % s->out_wide * s->stride_wide;
        const size_t begin = first_at(s->left, x0, s->dilation_wide, s->kernel_wide);
        const size_t end = first_at(s->left + s->wide, x0, s->dilation_wide, s->kernel_wide);
        for (size_t c = 0; c < channels; c++)
            for (size_t ky = 0; ky < s->kernel_high; ky++, from += s->kernel_wide) {
                const size_t down = y0 + ky * s->dilation_high;
                if (down < s->top || down - s->top >= s->high) continue;
                ap_f32 *row = x + (c * s->high + down - s->top) * s->wide;
                for (size_t kx = begin; kx < end; kx++) row[x0 + kx * s->dilation_wide - s->left] += from[kx];
            }
    }
}

/* The derivatives of outputs [first, first + count) of group `g` before the activation, `step` apart for each filter;
   in `block` where there is an activation */
static const ap_f32 *before_activation(const ap_conv *s, int activation, const ap_f32 *y, const ap_f32 *dy, size_t g,
                                       size_t first, size_t count, ap_f32 *block, size_t *step)
{
    const size_t plane = s->out_high * s->out_wide, filters = s->filters / s->groups;
    const size_t at = g * filters * plane + first;
    *step = activation ? count : plane;
    if (!activation) return dy + at;
    for (size_t f = 0; f < filters; f++)
        ap_deactivate(activation, y + at + f * plane, dy + at + f * plane, block + f * count, count);
    return block;
}

/* The floats of `work` before the block of derivatives */
static size_t block_of_taps(const ap_conv *s)
{
    const size_t size = s->kernel_high * s->kernel_wide * (s->channels / s->groups);
    return size * least(AP_CONV_BLOCK, s->out_high * s->out_wide);
}

static void add_bias(size_t examples, size_t channels, size_t plane, const ap_f32 *bias, ap_f32 *y)
{
    for (size_t i = 0; i < examples * channels; i++)
        for (size_t p = 0; p < plane; p++) y[i * plane + p] += bias[i % channels];
}

/* Every element of y is one chain over channels and the taps of each, in the order of the weights in memory; taps outside
   of the image add zero times their weight. */
void ap_conv_nchw_forward(const ap_conv *s, const ap_f32 *x, const ap_f32 *w, const ap_f32 *bias, ap_f32 *y,
                          ap_f32 *work)
{
    const size_t plane = s->out_high * s->out_wide, pixels = s->high * s->wide;
    const size_t in = s->channels / s->groups, out = s->filters / s->groups;
    const size_t size = s->kernel_high * s->kernel_wide * in;
    for (size_t i = 0; i < s->examples * s->groups; i++) {
        const ap_f32 *image = x + i * in * pixels, *v = w + i % s->groups * out * size;
        ap_f32 *to = y + i * out * plane;
        for (size_t p = 0; p < plane; p += AP_CONV_BLOCK) {
            const size_t count = least(AP_CONV_BLOCK, plane - p);
            if (is_pointwise(s)) {
                ap_product(out, count, size, v, size, 1, image + p, plane, to + p, plane, AP_SET);
            } else {
                read_taps(s, image, p, count, work, count, 1);
                ap_product(out, count, size, v, size, 1, work, count, to + p, plane, AP_SET);
            }
        }
    }
    if (bias) add_bias(s->examples, s->filters, plane, bias, y);
}

/* dx: outputs in their order; each adds, for each tap, a chain over the filters of the group. */
void ap_conv_nchw_backward_x(const ap_conv *s, int activation, const ap_f32 *w, const ap_f32 *y, const ap_f32 *dy,
                             ap_f32 *dx, ap_f32 *work)
{
    const size_t plane = s->out_high * s->out_wide, pixels = s->high * s->wide;
    const size_t in = s->channels / s->groups, out = s->filters / s->groups;
    const size_t size = s->kernel_high * s->kernel_wide * in;
    ap_f32 *block = activation ? work + (is_pointwise(s) ? 0 : block_of_taps(s)) : 0;
    ap_fill(dx, 0.0f, s->examples * s->channels * pixels);
    for (size_t i = 0; i < s->examples * s->groups; i++) {
        const ap_f32 *v = w + i % s->groups * out * size;
        ap_f32 *to = dx + i * in * pixels;
        for (size_t p = 0; p < plane; p += AP_CONV_BLOCK) {
            const size_t count = least(AP_CONV_BLOCK, plane - p);
            size_t step;
            const ap_f32 *dz = before_activation(s, activation, y, dy, i, p, count, block, &step);
            if (is_pointwise(s)) {
                ap_product(in, count, out, v, 1, size, dz, step, to + p, plane, AP_SET);
            } else {
                ap_product(count, size, out, dz, 1, step, v, size, work, size, AP_SET);
                add_taps(s, work, p, count, to);
            }
        }
    }
}

/* dw: for each example and block of outputs, in order, a chain over the outputs of the block; dbias: a chain over examples
   and outputs. */
void ap_conv_nchw_backward_w(const ap_conv *s, int activation, const ap_f32 *x, const ap_f32 *y, const ap_f32 *dy,
                             ap_f32 *dw, ap_f32 *dbias, ap_f32 *work)
{
    const size_t plane = s->out_high * s->out_wide, pixels = s->high * s->wide;
    const size_t in = s->channels / s->groups, out = s->filters / s->groups;
    const size_t size = s->kernel_high * s->kernel_wide * in;
    ap_f32 *block = activation ? work + (dw ? block_of_taps(s) : 0) : 0;
    if (dw) ap_fill(dw, 0.0f, s->filters * size);
    if (dbias) ap_fill(dbias, 0.0f, s->filters);
    for (size_t i = 0; i < s->examples * s->groups; i++) {
        const size_t g = i % s->groups;
        for (size_t p = 0; p < plane; p += AP_CONV_BLOCK) {
            const size_t count = least(AP_CONV_BLOCK, plane - p);
            size_t step;
            const ap_f32 *dz = before_activation(s, activation, y, dy, i, p, count, block, &step);
            for (size_t f = 0; dbias && f < out; f++)
                for (size_t k = 0; k < count; k++) dbias[g * out + f] += dz[f * step + k];
            if (!dw) continue;
            read_taps(s, x + i * in * pixels, p, count, work, 1, size);
            ap_product(out, size, count, dz, step, 1, work, size, dw + g * out * size, size, AP_ADD);
        }
    }
}

void ap_conv_nchw_transpose_forward(const ap_conv *s, const ap_f32 *x, const ap_f32 *w, const ap_f32 *bias, ap_f32 *y,
                                    ap_f32 *work)
{
    ap_conv_nchw_backward_x(s, AP_NONE, w, 0, x, y, work);
    if (bias) add_bias(s->examples, s->channels, s->high * s->wide, bias, y);
}

void ap_sum_channels(size_t examples, size_t channels, size_t positions, const ap_f32 *x, ap_f32 *sums)
{
    ap_fill(sums, 0.0f, channels);
    for (size_t i = 0; i < examples * channels; i++)
        for (size_t p = 0; p < positions; p++) sums[i % channels] += x[i * positions + p];
}
