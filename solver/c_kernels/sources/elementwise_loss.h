/* Losses of one element at a time, of a prediction x and a target t. */
#ifndef AP_ELEMENTWISE_LOSS_H
#define AP_ELEMENTWISE_LOSS_H
#include "ap.h"

typedef struct {
    size_t count;
    size_t each;      /* 1: y and dy have a loss for each element; 0: one, `scale` times the sum */
    ap_f32 scale;
    ap_f32 parameter; /* Huber: where the line begins; binary cross-entropy: the least probability */
} ap_elements;

/* Sums of 256 elements each, then their sum. dx or dt may be 0, and so may what these do not read. */
#define AP_ELEMENTWISE_LOSS(NAME)                                                                      \
    void NAME##_forward(const ap_elements *s, const ap_f32 *x, const ap_f32 *t, ap_f32 *y);            \
    void NAME##_backward(const ap_elements *s, const ap_f32 *x, const ap_f32 *t, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dt);

AP_ELEMENTWISE_LOSS(ap_squared_error)
AP_ELEMENTWISE_LOSS(ap_absolute_error)
AP_ELEMENTWISE_LOSS(ap_huber)
AP_ELEMENTWISE_LOSS(ap_binary_cross_entropy)         /* of probabilities, kept from 0 and 1 by `parameter` */
AP_ELEMENTWISE_LOSS(ap_binary_cross_entropy_clamped) /* of probabilities, whose logarithms are at least -100 */
AP_ELEMENTWISE_LOSS(ap_binary_cross_entropy_logits)
#endif
