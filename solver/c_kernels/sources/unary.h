/* Functions of one operand, element by element: y may be x, dx may be dy. */
#ifndef AP_UNARY_H
#define AP_UNARY_H
#include "ap.h"

enum {
    AP_EXP, AP_LOG, AP_SQRT, AP_RECIPROCAL, AP_NEG, AP_ABS, AP_ERF, AP_SOFTPLUS,
    AP_LEAKY_RELU,   /* x where x > 0, else alpha x */
    AP_ELU,          /* x where x > 0, else alpha (e^x - 1) */
    AP_HARD_SIGMOID, /* alpha x + beta within [0, 1] */
    AP_HARD_SWISH,   /* x times x / 6 + 1 / 2 within [0, 1] */
    AP_SWISH         /* x sigmoid(alpha x) */
};
void ap_unary_forward(int kind, size_t count, ap_f32 alpha, ap_f32 beta, const ap_f32 *x, ap_f32 *y);
/* dx = dy times the slope. `from` is y for exp, sqrt, reciprocal, the hard sigmoid, and where alpha > 0 for the leaky
   Relu and Elu; 0 for the negative; x for all others. */
void ap_unary_backward(int kind, size_t count, ap_f32 alpha, ap_f32 beta, const ap_f32 *from, const ap_f32 *dy,
                       ap_f32 *dx);
#endif
