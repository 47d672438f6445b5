/* Losses, summed row by row in the order of memory, and softmax. */
#ifndef AP_LOSS_H
#define AP_LOSS_H
#include "ap.h"

typedef struct {
    size_t outer, classes, inner; /* x as [outer, classes, inner]: one row for each outer and inner */
} ap_rows;

void ap_softmax_forward(const ap_rows *s, const ap_f32 *x, ap_f32 *y);                             /* y may be x */
void ap_softmax_backward(const ap_rows *s, const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx);         /* dx may be dy */

enum { AP_PROBABILITIES, AP_LOGITS };
/* `scale` is 1, or one over the number of rows. Labels are `dense` [rows, classes], or `sparse` classes: a row whose
   label is no class makes the loss NaN. */
void ap_cross_entropy_forward(int from, size_t rows, size_t classes, ap_f32 scale, ap_f32 smoothing, ap_f32 epsilon,
                              const ap_f32 *x, const ap_f32 *dense, const void *sparse, size_t label_bytes, ap_f32 *loss);
void ap_cross_entropy_backward(int from, size_t rows, size_t classes, ap_f32 scale, ap_f32 smoothing, ap_f32 epsilon,
                               const ap_f32 *x, const ap_f32 *dense, const void *sparse, size_t label_bytes,
                               const ap_f32 *dloss, ap_f32 *dx);
void ap_squared_error_forward(size_t count, ap_f32 scale, const ap_f32 *x, const ap_f32 *target, ap_f32 *loss);
void ap_squared_error_backward(size_t count, ap_f32 scale, const ap_f32 *x, const ap_f32 *target, const ap_f32 *dloss,
                               ap_f32 *dx, ap_f32 *dtarget);
void ap_binary_cross_entropy_forward(int from, size_t count, ap_f32 scale, ap_f32 epsilon, const ap_f32 *x,
                                     const ap_f32 *target, ap_f32 *loss);
void ap_binary_cross_entropy_backward(int from, size_t count, ap_f32 scale, ap_f32 epsilon, const ap_f32 *x,
                                      const ap_f32 *target, const ap_f32 *dloss, ap_f32 *dx);
#endif
