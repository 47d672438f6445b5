#include "ap.h"

void ap_lstm_forward(const ap_lstm *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *c, const ap_f32 *w,
                     const ap_f32 *r, const ap_f32 *bias, ap_f32 *y_h, ap_f32 *y_c, ap_f32 *gates)
{
    const size_t n = s->hidden, all = 4 * n;
    ap_dots(s->batch, all, x, s->inputs, w, s->inputs, s->inputs, gates, all, AP_SET);
    if (h) ap_dots(s->batch, all, h, n, r, n, n, gates, all, AP_ADD);
    for (size_t b = 0; b < s->batch; b++) {
        ap_f32 *g = gates + b * all;
        for (size_t k = 0; k < all; k++) {
            if (bias) g[k] += s->biases > 1 ? bias[k] + bias[all + k] : bias[k];
            g[k] = k < 3 * n ? ap_sigmoid(g[k]) : ap_tanh(g[k]);
        }
        for (size_t k = 0; k < n; k++) {
            const ap_f32 kept = c ? g[2 * n + k] * c[b * n + k] : 0.0f;
            const ap_f32 cell = kept + g[k] * g[3 * n + k];
            y_c[b * n + k] = cell;
            y_h[b * n + k] = g[n + k] * ap_tanh(cell);
        }
    }
}

void ap_lstm_backward(const ap_lstm *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *c, const ap_f32 *w,
                      const ap_f32 *r, const ap_f32 *y_c, const ap_f32 *gates, const ap_f32 *dy_h,
                      const ap_f32 *dy_c, ap_f32 *dx, ap_f32 *dh, ap_f32 *dc, ap_f32 *dw, ap_f32 *dr, ap_f32 *dbias,
                      ap_f32 *work)
{
    const size_t n = s->hidden, all = 4 * n;
    for (size_t b = 0; b < s->batch; b++) {
        const ap_f32 *g = gates + b * all;
        ap_f32 *d = work + b * all;
        for (size_t k = 0; k < n; k++) {
            const ap_f32 squashed = ap_tanh(y_c[b * n + k]), given = dy_h ? dy_h[b * n + k] : 0.0f;
            const ap_f32 in = g[k], out = g[n + k], forget = g[2 * n + k], cell = g[3 * n + k];
            ap_f32 dcell = given * out * (1.0f - squashed * squashed);
            if (dy_c) dcell += dy_c[b * n + k];
            d[k] = dcell * cell * (in * (1.0f - in));
            d[n + k] = given * squashed * (out * (1.0f - out));
            d[2 * n + k] = c ? dcell * c[b * n + k] * (forget * (1.0f - forget)) : 0.0f;
            d[3 * n + k] = dcell * in * (1.0f - cell * cell);
            if (dc) dc[b * n + k] = dcell * forget;
        }
    }
    if (dx) ap_product(s->batch, s->inputs, all, work, all, 1, w, s->inputs, dx, s->inputs, AP_SET);
    if (dh) ap_product(s->batch, n, all, work, all, 1, r, n, dh, n, AP_SET);
    if (dw) ap_product(all, s->inputs, s->batch, work, 1, all, x, s->inputs, dw, s->inputs, AP_SET);
    if (dr) {
        if (h)
            ap_product(all, n, s->batch, work, 1, all, h, n, dr, n, AP_SET);
        else
            ap_fill(dr, 0.0f, all * n);
    }
    if (dbias) {
        ap_fill(dbias, 0.0f, all);
        ap_add_rows(s->batch, all, work, dbias);
        if (s->biases > 1) ap_copy(dbias + all, dbias, all * sizeof(ap_f32));
    }
}
