/* Dense layers and matrix products. */
#ifndef AP_LINEAR_H
#define AP_LINEAR_H
#include "ap.h"

/* y [rows, outputs] = alpha x w + beta bias; w is [outputs, inputs] if `transposed`, else [inputs, outputs] */
typedef struct {
    size_t rows, inputs, outputs, transposed_w, transposed_x, bias_rows, bias_columns;
} ap_dense;
void ap_dense_forward(const ap_dense *s, ap_f32 alpha, ap_f32 beta, const ap_f32 *x, const ap_f32 *w,
                      const ap_f32 *bias, ap_f32 *y);
/* Any of dx, dw and dbias may be 0. `work` has the size of y if an activation is undone or alpha is not 1, else 0. */
void ap_dense_backward(const ap_dense *s, int activation, ap_f32 alpha, ap_f32 beta, const ap_f32 *x, const ap_f32 *w,
                       const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dw, ap_f32 *dbias, ap_f32 *work);

/* c[i] = a[i] b[i] for `count` matrices [rows, length] and [length, columns]; an operand that repeats has step 0 */
typedef struct {
    size_t count, rows, length, columns, step_a, step_b;
} ap_matrices;
void ap_matmul_forward(const ap_matrices *s, const ap_f32 *a, const ap_f32 *b, ap_f32 *c);
void ap_matmul_backward(const ap_matrices *s, int activation, const ap_f32 *a, const ap_f32 *b, const ap_f32 *c,
                        const ap_f32 *dc, ap_f32 *da, ap_f32 *db, ap_f32 *work);
#endif
