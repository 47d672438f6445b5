#include "ap.h"

static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t most(size_t a, size_t b) { return a > b ? a : b; }

/* Whether each filter has a channel of its own */
static int is_depthwise(const ap_conv *s) { return s->groups == s->channels && s->groups == s->filters; }

/* Elements of the weights */
static size_t weights(const ap_conv *s)
{
    return s->filters * s->kernel_high * s->kernel_wide * (s->channels / s->groups);
}

/* The least k, at most `end`, with start + k * step >= edge: the first tap that an output has inside the image, or the
   first output that has a tap inside */
static size_t steps_to(size_t edge, size_t start, size_t step, size_t end)
{
    return edge > start ? least((edge - start + step - 1) / step, end) : 0;
}

/* Outputs along one axis that have the same taps inside the image: one at its edge, or all that have all taps */
typedef struct {
    size_t outputs, first_tap, taps, input; /* input: what the first tap of the first output reads */
} alike;

static alike outputs_alike(size_t out, size_t end, size_t stride, size_t before, size_t size, size_t dilation,
                           size_t taps)
{
    const size_t start = out * stride, first = steps_to(before, start, dilation, taps);
    alike a = {1, 0, steps_to(before + size, start, dilation, taps) - first, 0};
    if (a.taps > 0) {
        a.first_tap = first;
        a.input = start + first * dilation - before;
    }
    while (a.taps == taps && out + a.outputs < end &&
           (out + a.outputs) * stride + (taps - 1) * dilation < before + size)
        a.outputs++;
    return a;
}

/* [filters, n] as [n, filters], or back */
static void swap_axes(size_t filters, size_t n, const ap_f32 *from, ap_f32 *to)
{
    for (size_t f = 0; f < filters; f++)
        for (size_t i = 0; i < n; i++) to[i * filters + f] = from[f * n + i];
}

/* The pixels of a rectangle, `high` times `wide`, are the rows of a product: all of them where they follow each other, or
   those of a row or a column. */
typedef struct {
    size_t high, wide, a_down, a_right, c_down, c_right;
} rectangle;

static void products(rectangle r, size_t columns, const ap_terms *t, const ap_f32 *a, const ap_f32 *b, ap_f32 *c,
                     int mode)
{
    if (r.wide == 1 || (r.a_down == r.wide * r.a_right && r.c_down == r.wide * r.c_right)) {
        if (r.wide == 1) r.a_right = r.a_down, r.c_right = r.c_down;
        r.wide *= r.high;
        r.high = 1;
    }
    for (size_t i = 0; i < r.high; i++, a += r.a_down, c += r.c_down)
        ap_products(r.wide, columns, t, a, r.a_right, b, c, r.c_right, mode);
}

/* The first outputs of y, without the bias. `w` is [taps, channels, filters]. */
static void outputs(const ap_conv *s, const ap_f32 *image, const ap_f32 *w, const alike *down, const alike *right,
                    ap_f32 *y)
{
    const size_t in = s->channels / s->groups, out = s->filters / s->groups, row = s->wide * s->channels;
    const size_t a_down = s->dilation_high * row, a_right = s->dilation_wide * s->channels;
    const size_t b_right = in * s->filters, b_down = s->kernel_wide * b_right;
    const rectangle r = {down->outputs, right->outputs, s->stride_high * row, s->stride_wide * s->channels,
                         s->out_wide * s->filters, s->filters};
    const ap_f32 *from = image + down->input * row + right->input * s->channels;
    w += down->first_tap * b_down + right->first_tap * b_right;
    if (s->groups == 1 && s->dilation_wide == 1) { /* a row of taps is one run of memory */
        const ap_terms terms = {down->taps, right->taps * in, a_down, 1, 0, b_down, s->filters};
        products(r, s->filters, &terms, from, w, y, AP_SET);
    } else if (is_depthwise(s)) {
        const ap_terms terms = {down->taps, right->taps, a_down, a_right, 1, b_down, s->filters};
        products(r, s->filters, &terms, from, w, y, AP_SET);
    } else {
        const ap_terms terms = {down->taps ? right->taps : 0, in, a_right, 1, 0, b_right, s->filters};
        for (size_t k = 0; k < most(down->taps, 1); k++, from += a_down, w += b_down)
            for (size_t g = 0; g < s->groups; g++)
                products(r, out, &terms, from + g * in, w + g * out, y + g * out, k ? AP_CHAIN : AP_SET);
    }
}

/* Every element of y is one chain over the taps inside the image in the order of the kernel's memory, channels inside */
void ap_conv_forward(const ap_conv *s, const ap_f32 *x, const ap_f32 *w, const ap_f32 *bias, ap_f32 *y, ap_f32 *work)
{
    enum { ROWS = 12 };
    swap_axes(s->filters, weights(s) / s->filters, w, work);
    for (size_t n = 0; n < s->examples; n++, x += s->high * s->wide * s->channels) {
        alike down, right;
        for (size_t oy = 0; oy < s->out_high; oy += down.outputs) {
            down = outputs_alike(oy, least(oy + ROWS, s->out_high), s->stride_high, s->top, s->high, s->dilation_high,
                                 s->kernel_high);
            for (size_t ox = 0; ox < s->out_wide; ox += right.outputs) {
                right = outputs_alike(ox, s->out_wide, s->stride_wide, s->left, s->wide, s->dilation_wide, s->kernel_wide);
                outputs(s, x, work, &down, &right, y + ox * s->filters);
            }
            const size_t pixels = down.outputs * s->out_wide;
            if (bias) ap_add_to_rows(pixels, s->filters, bias, y);
            y += pixels * s->filters;
        }
    }
}

/* A band is a number of rows of outputs: those that have AP_CONV_BAND pixels, at least one. Returns its derivatives before
   the activation, which are in `room` if there is an activation. */
static const ap_f32 *before_activation(const ap_conv *s, int activation, const ap_f32 *y, const ap_f32 *dy, size_t n,
                                       size_t oy, size_t rows, ap_f32 *room)
{
    const size_t count = s->out_wide * s->filters, at = (n * s->out_high + oy) * count;
    if (!activation) return dy + at;
    ap_deactivate(activation, y + at, dy + at, room, rows * count);
    return room;
}

static size_t band(const ap_conv *s) { return most(least(AP_CONV_BAND / s->out_wide, s->out_high), 1); }

/* The outputs among rows [oy, end) that have a tap inside the image: rows [first, last), columns [left, right) */
typedef struct {
    size_t first, last, left, right;
} reached;

static int reaches(const ap_conv *s, size_t tap, size_t oy, size_t end, reached *r)
{
    const size_t down = tap / s->kernel_wide * s->dilation_high, right = tap % s->kernel_wide * s->dilation_wide;
    r->first = most(oy, steps_to(s->top, down, s->stride_high, s->out_high));
    r->last = least(end, steps_to(s->top + s->high, down, s->stride_high, s->out_high));
    r->left = steps_to(s->left, right, s->stride_wide, s->out_wide);
    r->right = steps_to(s->left + s->wide, right, s->stride_wide, s->out_wide);
    return r->first < r->last && r->left < r->right;
}

/* The pixel of x that the first of these outputs reads */
static size_t pixel(const ap_conv *s, size_t tap, const reached *r)
{
    const size_t row = r->first * s->stride_high + tap / s->kernel_wide * s->dilation_high - s->top;
    return row * s->wide + r->left * s->stride_wide + tap % s->kernel_wide * s->dilation_wide - s->left;
}

/* Every element of dx is one chain over the outputs that read it, in the order of memory, filters inside: later taps are
   those of earlier outputs. */
void ap_conv_backward_x(const ap_conv *s, int activation, const ap_f32 *w, const ap_f32 *y, const ap_f32 *dy,
                        ap_f32 *dx, ap_f32 *work)
{
    const size_t taps = s->kernel_high * s->kernel_wide, rows = activation ? band(s) : s->out_high;
    const int by_channel = is_depthwise(s);
    const size_t groups = by_channel ? 1 : s->groups, in = s->channels / groups, out = s->filters / groups;
    const ap_terms terms = {1, by_channel ? 1 : out, 0, 1, (size_t)by_channel, 0, taps * in};
    ap_f32 *room = work;
    if (by_channel) {
        swap_axes(s->filters, taps, w, work);
        w = work;
        room += weights(s);
    }
    ap_fill(dx, 0.0f, s->examples * s->high * s->wide * s->channels);
    for (size_t n = 0; n < s->examples; n++, dx += s->high * s->wide * s->channels)
        for (size_t oy = 0; oy < s->out_high; oy += rows) {
            const size_t end = least(oy + rows, s->out_high);
            const ap_f32 *dz = before_activation(s, activation, y, dy, n, oy, end - oy, room);
            for (size_t tap = taps; tap-- > 0;) {
                reached r;
                if (!reaches(s, tap, oy, end, &r)) continue;
                const ap_f32 *d = dz + ((r.first - oy) * s->out_wide + r.left) * s->filters;
                ap_f32 *to = dx + pixel(s, tap, &r) * s->channels;
                const rectangle pixels = {r.last - r.first, r.right - r.left, s->out_wide * s->filters, s->filters,
                                          s->stride_high * s->wide * s->channels, s->stride_wide * s->channels};
                for (size_t g = 0; g < groups; g++)
                    products(pixels, in, &terms, d + g * out, w + (g * out * taps + tap) * in, to + g * in, AP_CHAIN);
            }
        }
}

/* dw: for each band and each tap a chain over the outputs that have it inside; bands in order. dbias: rows in order. */
void ap_conv_backward_w(const ap_conv *s, int activation, const ap_f32 *x, const ap_f32 *y, const ap_f32 *dy,
                        ap_f32 *dw, ap_f32 *dbias, ap_f32 *work)
{
    const size_t taps = s->kernel_high * s->kernel_wide, rows = band(s);
    const int by_channel = is_depthwise(s);
    const size_t groups = by_channel ? 1 : s->groups, out = s->filters / groups, in = s->channels / s->groups;
    ap_f32 *room = dw ? work + weights(s) : work;
    if (dw) ap_fill(work, 0.0f, weights(s));
    if (dbias) ap_fill(dbias, 0.0f, s->filters);
    for (size_t n = 0; n < s->examples; n++)
        for (size_t oy = 0; oy < s->out_high; oy += rows) {
            const size_t end = least(oy + rows, s->out_high);
            const ap_f32 *dz = before_activation(s, activation, y, dy, n, oy, end - oy, room);
            if (dbias) ap_add_rows((end - oy) * s->out_wide, s->filters, dz, dbias);
            for (size_t tap = 0; dw && tap < taps; tap++) {
                reached r;
                if (!reaches(s, tap, oy, end, &r)) continue;
                const ap_f32 *from = x + (n * s->high * s->wide + pixel(s, tap, &r)) * s->channels;
                const ap_f32 *d = dz + ((r.first - oy) * s->out_wide + r.left) * s->filters;
                const ap_terms terms = {r.last - r.first, r.right - r.left, s->stride_high * s->wide * s->channels,
                                        s->stride_wide * s->channels, (size_t)by_channel, s->out_wide * s->filters,
                                        s->filters};
                ap_f32 *sums = work + tap * in * s->filters;
                for (size_t g = 0; g < groups; g++)
                    ap_products(in, out, &terms, from + g * in, 1, d + g * out, sums + g * out, s->filters, AP_ADD);
            }
        }
    if (dw) swap_axes(taps * in, s->filters, work, dw);
}

/* y is what backward_x makes of x: `s` is the convolution from y to x. Then the bias. */
void ap_conv_transpose_forward(const ap_conv *s, const ap_f32 *x, const ap_f32 *w, const ap_f32 *bias, ap_f32 *y,
                               ap_f32 *work)
{
    ap_conv_backward_x(s, AP_NONE, w, 0, x, y, work);
    if (bias) ap_add_to_rows(s->examples * s->high * s->wide, s->channels, bias, y);
}
