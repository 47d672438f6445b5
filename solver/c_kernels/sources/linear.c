#include "ap.h"

void ap_dense_forward(const ap_dense *s, ap_f32 alpha, ap_f32 beta, const ap_f32 *x, const ap_f32 *w,
                      const ap_f32 *bias, ap_f32 *y)
{
    const size_t rows = s->rows, in = s->inputs, out = s->outputs;
    if (s->transposed_w && !s->transposed_x)
        ap_dots(rows, out, x, in, w, in, in, y, out, AP_SET);
    else if (!s->transposed_w)
        ap_product(rows, out, in, x, s->transposed_x ? 1 : in, s->transposed_x ? rows : 1, w, out, y, out, AP_SET);
    else
        for (size_t n = 0; n < out; n++) ap_product(rows, 1, in, x, 1, rows, w + n * in, 1, y + n, out, AP_SET);
    for (size_t m = 0; m < rows; m++)
        for (size_t n = 0; n < out; n++) {
            ap_f32 *to = y + m * out + n;
            if (alpha != 1.0f) *to *= alpha;
            if (bias) *to += beta * bias[(s->bias_rows > 1 ? m * s->bias_columns : 0) + (s->bias_columns > 1 ? n : 0)];
        }
}

void ap_dense_backward(const ap_dense *s, int activation, ap_f32 alpha, ap_f32 beta, const ap_f32 *x, const ap_f32 *w,
                       const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dw, ap_f32 *dbias, ap_f32 *work)
{
    const size_t rows = s->rows, in = s->inputs, out = s->outputs;
    const ap_f32 *dz = dy;
    if (activation) {
        ap_deactivate(activation, y, dy, work, rows * out);
        dz = work;
    }
    if (dbias) {
        ap_fill(dbias, 0.0f, s->bias_rows * s->bias_columns);
        for (size_t m = 0; m < rows; m++)
            for (size_t n = 0; n < out; n++)
                dbias[(s->bias_rows > 1 ? m * s->bias_columns : 0) + (s->bias_columns > 1 ? n : 0)] += dz[m * out + n];
        if (beta != 1.0f)
            for (size_t i = 0; i < s->bias_rows * s->bias_columns; i++) dbias[i] *= beta;
    }
    if (alpha != 1.0f && (dx || dw)) {
        for (size_t i = 0; i < rows * out; i++) work[i] = dz[i] * alpha;
        dz = work;
    }
    if (dx) {
        if (s->transposed_x) /* dx [inputs, rows] = w dz^T */
            for (size_t m = 0; m < rows; m++)
                ap_product(in, 1, out, w, s->transposed_w ? 1 : out, s->transposed_w ? in : 1, dz + m * out, 1, dx + m,
                           rows, AP_SET);
        else if (s->transposed_w)
            ap_product(rows, in, out, dz, out, 1, w, in, dx, in, AP_SET);
        else
            ap_dots(rows, in, dz, out, w, out, out, dx, in, AP_SET);
    }
    if (dw) {
        if (!s->transposed_w)
            ap_product(in, out, rows, x, s->transposed_x ? rows : 1, s->transposed_x ? 1 : in, dz, out, dw, out, AP_SET);
        else if (!s->transposed_x)
            ap_product(out, in, rows, dz, 1, out, x, in, dw, in, AP_SET);
        else
            for (size_t k = 0; k < in; k++) ap_product(out, 1, rows, dz, 1, out, x + k * rows, 1, dw + k, in, AP_SET);
    }
}

void ap_matmul_forward(const ap_matrices *s, const ap_f32 *a, const ap_f32 *b, ap_f32 *c)
{
    for (size_t i = 0; i < s->count; i++)
        ap_product(s->rows, s->columns, s->length, a + i * s->step_a, s->length, 1, b + i * s->step_b, s->columns,
                   c + i * s->rows * s->columns, s->columns, AP_SET);
}

void ap_matmul_backward(const ap_matrices *s, int activation, const ap_f32 *a, const ap_f32 *b, const ap_f32 *c,
                        const ap_f32 *dc, ap_f32 *da, ap_f32 *db, ap_f32 *work)
{
    const size_t area = s->rows * s->columns;
    const ap_f32 *dz = dc;
    if (activation) {
        ap_deactivate(activation, c, dc, work, s->count * area);
        dz = work;
    }
    for (size_t i = 0; i < s->count; i++) {
        const ap_f32 *d = dz + i * area;
        if (da) /* da = dz b^T; sums over matrices where a repeats */
            ap_dots(s->rows, s->length, d, s->columns, b + i * s->step_b, s->columns, s->columns, da + i * s->step_a,
                    s->length, i && !s->step_a ? AP_ADD : AP_SET);
        if (db)
            ap_product(s->length, s->columns, s->rows, a + i * s->step_a, 1, s->length, d, s->columns, db + i * s->step_b,
                       s->columns, i && !s->step_b ? AP_ADD : AP_SET);
    }
}
