/* One step of a long short-term memory. Gates in the order of memory: input, output, forget, cell. */
#ifndef AP_RECURRENT_H
#define AP_RECURRENT_H
#include "ap.h"

typedef struct {
    size_t batch, inputs, hidden;
    size_t biases; /* 2: one for W and one for R, which are added; 1, or 0 */
} ap_lstm;
/* h and c, the state before, may be 0: zeros. `bias` [2, 4 hidden] may be 0. `gates` [batch, 4 hidden] is saved. */
void ap_lstm_forward(const ap_lstm *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *c, const ap_f32 *w,
                     const ap_f32 *r, const ap_f32 *bias, ap_f32 *y_h, ap_f32 *y_c, ap_f32 *gates);
/* Results that are 0 are left out; dy_c may be 0. `work` has 4 floats for each hidden unit of each example. */
void ap_lstm_backward(const ap_lstm *s, const ap_f32 *x, const ap_f32 *h, const ap_f32 *c, const ap_f32 *w,
                      const ap_f32 *r, const ap_f32 *y_c, const ap_f32 *gates, const ap_f32 *dy_h,
                      const ap_f32 *dy_c, ap_f32 *dx, ap_f32 *dh, ap_f32 *dc, ap_f32 *dw, ap_f32 *dr, ap_f32 *dbias,
                      ap_f32 *work);
#endif
