/* Losses, summed row by row in the order of memory, and softmax. */
#ifndef AP_LOSS_H
#define AP_LOSS_H
#include "ap.h"

typedef struct {
    size_t outer, classes, inner; /* x as [outer, classes, inner]: one row for each outer and inner */
} ap_rows;

void ap_softmax_forward(const ap_rows *s, const ap_f32 *x, ap_f32 *y);                             /* y may be x */
void ap_softmax_backward(const ap_rows *s, const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx);         /* dx may be dy */

void ap_log_softmax_forward(const ap_rows *s, const ap_f32 *x, ap_f32 *y);                         /* y may be x */
void ap_log_softmax_backward(const ap_rows *s, const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx);     /* dx may be dy */

/* Cross-entropy and divergence of x [rows, classes], probabilities or logits. Labels are [rows, classes], or classes of
   `label_bytes` each: a row whose label is no class makes the loss NaN, unless it is the `ignored` one. */
typedef struct {
    size_t rows, classes, label_bytes;
    size_t from_logits, is_mean, each; /* `each`: y and dy have a loss for each row, not the sum or mean */
    size_t ignores;
    int64_t ignored;
    ap_f32 smoothing, epsilon;
} ap_classes;
void ap_cross_entropy_forward(const ap_classes *s, const ap_f32 *x, const void *labels, ap_f32 *y);
void ap_cross_entropy_backward(const ap_classes *s, const ap_f32 *x, const void *labels, const ap_f32 *dy, ap_f32 *dx);
void ap_cross_entropy_by_label(const ap_classes *s, const ap_f32 *x, const ap_f32 *dy, ap_f32 *dt);
/* The derivative by x is that of the cross-entropy */
void ap_divergence_forward(const ap_classes *s, const ap_f32 *x, const ap_f32 *labels, ap_f32 *y);
void ap_divergence_by_label(const ap_classes *s, const ap_f32 *x, const ap_f32 *labels, const ap_f32 *dy, ap_f32 *dt);
#endif
