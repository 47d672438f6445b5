/* One step of recurrent cells. Gates in the order of memory: of a long short-term memory input, output, forget, cell; of a
   gated unit update, reset, new. */
#ifndef AP_RECURRENT_H
#define AP_RECURRENT_H
#include "ap.h"

/* States before, which may be 0, are zeros then. `bias` [biases, gates * hidden] may be 0; two are added, but for the last gate
   of a gated unit whose reset is behind its product. Derivatives that are 0 are left out. */
typedef struct {
    size_t batch, inputs, hidden;
    size_t biases;
} ap_cell;

/* `gates` [batch, 4 hidden] is saved. `peepholes` [3, hidden], of input, output and forget gate, may be 0. */
void ap_lstm_forward(const ap_cell *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *c, const ap_f32 *w,
                     const ap_f32 *r, const ap_f32 *bias, const ap_f32 *peepholes, ap_f32 *y_h, ap_f32 *y_c,
                     ap_f32 *gates);
/* dy_h or dy_c may be 0. `work` has 4 floats for each hidden unit of each example. */
void ap_lstm_backward(const ap_cell *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *c, const ap_f32 *w,
                      const ap_f32 *r, const ap_f32 *peepholes, const ap_f32 *y_c, const ap_f32 *gates,
                      const ap_f32 *dy_h, const ap_f32 *dy_c, ap_f32 *dx, ap_f32 *dh, ap_f32 *dc, ap_f32 *dw,
                      ap_f32 *dr, ap_f32 *dbias, ap_f32 *dpeepholes, ap_f32 *work);

/* `gates` [batch, 3 hidden] is saved, and `product` [batch, hidden] if the reset is behind the product; else it is 0 and `work`
   has a float for each hidden unit of each example. */
void ap_gru_forward(const ap_cell *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *w, const ap_f32 *r,
                    const ap_f32 *bias, ap_f32 *y, ap_f32 *gates, ap_f32 *product, ap_f32 *work);
/* `work` has 4 floats for each hidden unit of each example. */
void ap_gru_backward(const ap_cell *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *w, const ap_f32 *r,
                     const ap_f32 *gates, const ap_f32 *product, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dh, ap_f32 *dw,
                     ap_f32 *dr, ap_f32 *dbias, ap_f32 *work);

void ap_rnn_forward(const ap_cell *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *w, const ap_f32 *r,
                    const ap_f32 *bias, ap_f32 *y);
/* `work` has a float for each hidden unit of each example. */
void ap_rnn_backward(const ap_cell *s, int activation, const ap_f32 *x, const ap_f32 *h, const ap_f32 *w,
                     const ap_f32 *r, const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dh, ap_f32 *dw, ap_f32 *dr,
                     ap_f32 *dbias, ap_f32 *work);
#endif
