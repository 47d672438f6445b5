#include "ap.h"

/* sums [batch, rows] = x w', then the product of the first `through` rows with h, then the biases: of R's the first `added` */
static void sums_of_gates(const ap_cell *s, size_t rows, size_t through, size_t added, const ap_f32 *x, const ap_f32 *h,
                          const ap_f32 *w, const ap_f32 *r, const ap_f32 *bias, ap_f32 *sums)
{
    ap_dots(s->batch, rows, x, s->inputs, w, s->inputs, s->inputs, sums, rows, AP_SET);
    if (h) ap_dots(s->batch, through, h, s->hidden, r, s->hidden, s->hidden, sums, rows, AP_ADD);
    for (size_t b = 0; bias && b < s->batch; b++)
        for (size_t k = 0; k < rows; k++)
            sums[b * rows + k] += s->biases > 1 && k < added ? bias[k] + bias[rows + k] : bias[k];
}

/* What the derivatives of the sums give: of x and w, and the biases' */
static void through_inputs(const ap_cell *s, size_t rows, const ap_f32 *dsums, const ap_f32 *x, const ap_f32 *w,
                           ap_f32 *dx, ap_f32 *dw, ap_f32 *dbias)
{
    if (dx) ap_product(s->batch, s->inputs, rows, dsums, rows, 1, w, s->inputs, dx, s->inputs, AP_SET);
    if (dw) ap_product(rows, s->inputs, s->batch, dsums, 1, rows, x, s->inputs, dw, s->inputs, AP_SET);
    if (!dbias) return;
    ap_fill(dbias, 0.0f, rows);
    ap_add_rows(s->batch, rows, dsums, dbias);
    if (s->biases > 1) ap_copy(dbias + rows, dbias, rows * sizeof(ap_f32));
}

/* dh (+)= dsums R, and dR = dsums' h, of `rows` gates whose derivatives are `step` apart */
static void through_state(const ap_cell *s, size_t rows, size_t step, const ap_f32 *dsums, const ap_f32 *h,
                          const ap_f32 *r, ap_f32 *dh, ap_f32 *dr, int mode)
{
    const size_t n = s->hidden;
    if (dh) ap_product(s->batch, n, rows, dsums, step, 1, r, n, dh, n, mode);
    if (dr && h) ap_product(rows, n, s->batch, dsums, 1, step, h, n, dr, n, AP_SET);
    if (dr && !h) ap_fill(dr, 0.0f, rows * n);
}

void ap_lstm_forward(const ap_cell *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *c, const ap_f32 *w,
                     const ap_f32 *r, const ap_f32 *bias, const ap_f32 *peepholes, ap_f32 *y_h, ap_f32 *y_c,
                     ap_f32 *gates)
{
    const size_t n = s->hidden;
    sums_of_gates(s, 4 * n, 4 * n, 4 * n, x, h, w, r, bias, gates);
    for (size_t b = 0; b < s->batch; b++)
        for (size_t k = 0; k < n; k++) {
            ap_f32 *in = gates + b * 4 * n + k, *out = in + n, *forget = out + n, *candidate = forget + n;
            const ap_f32 before = c ? c[b * n + k] : 0.0f;
            if (peepholes && c) {
                *in += before * peepholes[k];
                *forget += before * peepholes[2 * n + k];
            }
            *in = ap_sigmoid(*in);
            *forget = ap_sigmoid(*forget);
            *candidate = ap_tanh(*candidate);
            const ap_f32 cell = (c ? *forget * before : 0.0f) + *in * *candidate;
            if (peepholes) *out += cell * peepholes[n + k];
            *out = ap_sigmoid(*out);
            y_c[b * n + k] = cell;
            y_h[b * n + k] = *out * ap_tanh(cell);
        }
}

void ap_lstm_backward(const ap_cell *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *c, const ap_f32 *w,
                      const ap_f32 *r, const ap_f32 *peepholes, const ap_f32 *y_c, const ap_f32 *gates,
                      const ap_f32 *dy_h, const ap_f32 *dy_c, ap_f32 *dx, ap_f32 *dh, ap_f32 *dc, ap_f32 *dw,
                      ap_f32 *dr, ap_f32 *dbias, ap_f32 *dpeepholes, ap_f32 *work)
{
    const size_t n = s->hidden;
    if (dpeepholes) ap_fill(dpeepholes, 0.0f, 3 * n);
    for (size_t b = 0; b < s->batch; b++) {
        const ap_f32 *g = gates + b * 4 * n;
        ap_f32 *d = work + b * 4 * n;
        for (size_t k = 0; k < n; k++) {
            const ap_f32 in = g[k], out = g[n + k], forget = g[2 * n + k], candidate = g[3 * n + k];
            ap_f32 dcell = 0.0f;
            d[n + k] = 0.0f;
            if (dy_h) {
                const ap_f32 squashed = ap_tanh(y_c[b * n + k]), dy = dy_h[b * n + k];
                dcell = dy * out * (1.0f - squashed * squashed);
                d[n + k] = dy * squashed * (out * (1.0f - out));
                if (peepholes) dcell += d[n + k] * peepholes[n + k];
            }
            if (dy_c) dcell += dy_c[b * n + k];
            d[k] = dcell * candidate * (in * (1.0f - in));
            d[2 * n + k] = c ? dcell * c[b * n + k] * (forget * (1.0f - forget)) : 0.0f;
            d[3 * n + k] = dcell * in * (1.0f - candidate * candidate);
            if (dpeepholes) {
                if (c) dpeepholes[k] += d[k] * c[b * n + k];
                dpeepholes[n + k] += d[n + k] * y_c[b * n + k];
                if (c) dpeepholes[2 * n + k] += d[2 * n + k] * c[b * n + k];
            }
            if (!dc) continue;
            ap_f32 before = dcell * forget;
            if (peepholes) before += d[k] * peepholes[k] + d[2 * n + k] * peepholes[2 * n + k];
            dc[b * n + k] = before;
        }
    }
    through_inputs(s, 4 * n, work, x, w, dx, dw, dbias);
    through_state(s, 4 * n, 4 * n, work, h, r, dh, dr, AP_SET);
}

void ap_gru_forward(const ap_cell *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *w, const ap_f32 *r,
                    const ap_f32 *bias, ap_f32 *y, ap_f32 *gates, ap_f32 *product, ap_f32 *work)
{
    const size_t n = s->hidden, all = 3 * n;
    const ap_f32 *last = r ? r + 2 * n * n : 0;
    sums_of_gates(s, all, 2 * n, product ? 2 * n : all, x, h, w, r, bias, gates);
    for (size_t b = 0; b < s->batch; b++)
        for (size_t k = 0; k < 2 * n; k++) gates[b * all + k] = ap_sigmoid(gates[b * all + k]);
    if (product) {
        ap_fill(product, 0.0f, s->batch * n);
        if (h) ap_dots(s->batch, n, h, n, last, n, n, product, n, AP_SET);
        for (size_t b = 0; b < s->batch; b++)
            for (size_t k = 0; k < n; k++) {
                if (bias && s->biases > 1) product[b * n + k] += bias[all + 2 * n + k];
                gates[b * all + 2 * n + k] += gates[b * all + n + k] * product[b * n + k];
            }
    } else if (h) {
        for (size_t b = 0; b < s->batch; b++)
            for (size_t k = 0; k < n; k++) work[b * n + k] = gates[b * all + n + k] * h[b * n + k];
        ap_dots(s->batch, n, work, n, last, n, n, gates + 2 * n, all, AP_ADD);
    }
    for (size_t b = 0; b < s->batch; b++)
        for (size_t k = 0; k < n; k++) {
            ap_f32 *candidate = gates + b * all + 2 * n + k;
            *candidate = ap_tanh(*candidate);
            y[b * n + k] = ((h ? h[b * n + k] : 0.0f) - *candidate) * gates[b * all + k] + *candidate;
        }
}

void ap_gru_backward(const ap_cell *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *w, const ap_f32 *r,
                     const ap_f32 *gates, const ap_f32 *product, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dh, ap_f32 *dw,
                     ap_f32 *dr, ap_f32 *dbias, ap_f32 *work)
{
    const size_t n = s->hidden, all = 3 * n;
    ap_f32 *d = work, *through = work + s->batch * all;
    for (size_t b = 0; b < s->batch; b++)
        for (size_t k = 0; k < n; k++) {
            const ap_f32 z = gates[b * all + k], candidate = gates[b * all + 2 * n + k], g = dy[b * n + k];
            d[b * all + 2 * n + k] = (1.0f - candidate * candidate) * (1.0f - z) * g;
            d[b * all + k] = z * (1.0f - z) * ((h ? h[b * n + k] : 0.0f) - candidate) * g;
        }
    if (!product && h) /* the derivative of reset times state */
        ap_product(s->batch, n, n, d + 2 * n, all, 1, r + 2 * n * n, n, through, n, AP_SET);
    for (size_t b = 0; b < s->batch; b++)
        for (size_t k = 0; k < n; k++) {
            const ap_f32 reset = gates[b * all + n + k], slope = reset * (1.0f - reset);
            const ap_f32 dnew = d[b * all + 2 * n + k];
            ap_f32 *t = through + b * n + k;
            d[b * all + n + k] = product ? slope * product[b * n + k] * dnew : h ? slope * h[b * n + k] * *t : 0.0f;
            if (product) *t = dnew * reset;
        }
    through_inputs(s, all, d, x, w, dx, dw, dbias);
    if (dbias && product && s->biases > 1) {
        ap_fill(dbias + all + 2 * n, 0.0f, n);
        ap_add_rows(s->batch, n, through, dbias + all + 2 * n);
    }
    /* d of update and reset is read by dR; what goes to dh past the products is added behind them */
    ap_f32 *last = dr ? dr + 2 * n * n : 0;
    if (dh && product) ap_product(s->batch, n, n, through, n, 1, r + 2 * n * n, n, dh, n, AP_SET);
    if (dh && !product)
        for (size_t b = 0; b < s->batch; b++)
            for (size_t k = 0; k < n; k++) dh[b * n + k] = through[b * n + k] * gates[b * all + n + k];
    through_state(s, 2 * n, all, d, h, r, dh, dr, AP_ADD);
    for (size_t i = 0; dh && i < s->batch * n; i++) dh[i] += gates[i / n * all + i % n] * dy[i];
    if (last && product && h) ap_product(n, n, s->batch, through, 1, n, h, n, last, n, AP_SET);
    if (last && !product && h) {
        for (size_t i = 0; i < s->batch * n; i++) through[i] = gates[i / n * all + n + i % n] * h[i];
        ap_product(n, n, s->batch, d + 2 * n, 1, all, through, n, last, n, AP_SET);
    }
    if (last && !h) ap_fill(last, 0.0f, n * n);
}

void ap_rnn_forward(const ap_cell *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *w, const ap_f32 *r,
                    const ap_f32 *bias, ap_f32 *y)
{
    sums_of_gates(s, s->hidden, s->hidden, s->hidden, x, h, w, r, bias, y);
}

void ap_rnn_backward(const ap_cell *s, int activation, const ap_f32 *x, const ap_f32 *h, const ap_f32 *w,
                     const ap_f32 *r, const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dh, ap_f32 *dw, ap_f32 *dr,
                     ap_f32 *dbias, ap_f32 *work)
{
    ap_deactivate(activation, y, dy, work, s->batch * s->hidden);
    through_inputs(s, s->hidden, work, x, w, dx, dw, dbias);
    through_state(s, s->hidden, s->hidden, work, h, r, dh, dr, AP_SET);
}
