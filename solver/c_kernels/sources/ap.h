/* Kernels in portable C11: forward and backward steps of neural networks in float32.

   No allocation, no library call, no global state. The order of every sum is fixed and stated at its function, so
   a kernel leaves the same bits wherever float and double are IEEE 754's and nothing is contracted or reordered:

       products   each element of the result is one chain over k, from 0
       dots       16 lanes, lane l takes the terms l, l + 16, ...; then a fixed tree
       others     in the order of the elements in memory, or as stated

   Compile with -std=c11 -ffp-contract=off -fno-fast-math. */
#ifndef AP_H
#define AP_H

#include <float.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "These kernels compute other numbers with -ffast-math: leave it out."
#endif
#if FLT_EVAL_METHOD != 0
#error "float must be evaluated as float (FLT_EVAL_METHOD 0): on x86 compile with -msse2 -mfpmath=sse."
#endif

typedef float ap_f32;
#if defined(__GNUC__)
#define AP_INFINITY __builtin_inff() /* the product is not folded by every compiler */
#else
#define AP_INFINITY ((ap_f32)(1e300 * 1e300))
#endif

/* ------------------------------------------------------------------ memory */
void ap_copy(void *to, const void *from, size_t bytes); /* may overlap */
void ap_fill(ap_f32 *y, ap_f32 value, size_t count);

/* ------------------------------------------------------------------ scalars
   with the largest error at any float, in units in the last place; NaN gives NaN */
ap_f32 ap_exp(ap_f32 x);      /* 0.78 */
ap_f32 ap_log(ap_f32 x);      /* 0.84 */
ap_f32 ap_tanh(ap_f32 x);     /* 1.4 */
ap_f32 ap_sigmoid(ap_f32 x);  /* 1.19; 1 / (1 + e^-x) */
ap_f32 ap_erf(ap_f32 x);      /* 1.18 */
ap_f32 ap_expm1(ap_f32 x);    /* 1.23; e^x - 1 */
ap_f32 ap_softplus(ap_f32 x); /* 1.7; ln(1 + e^x) */
ap_f32 ap_sqrt(ap_f32 x);     /* 0.5: correctly rounded */

/* ------------------------------------------------------------------ products */
/* What becomes of c: the sum; c + the sum; or the chain goes on from c */
enum { AP_SET, AP_ADD, AP_CHAIN };
/* c[m][n] = sum over k < length of a[m * a_row + k * a_step] * b[k * b_row + n] */
void ap_product(size_t rows, size_t columns, size_t length, const ap_f32 *a, size_t a_row, size_t a_step,
                const ap_f32 *b, size_t b_row, ap_f32 *c, size_t c_row, int mode);
/* The terms of a sum: segments s of `length` terms k. `a_column` is 1 if a has a factor of its own for each column n, else
   0. */
typedef struct {
    size_t segments, length, a_segment, a_step, a_column, b_segment, b_step;
} ap_terms;
/* c[m][n] = sum over s, k of a[m * a_row + s * a_segment + k * a_step + n * a_column] * b[s * b_segment + k * b_step + n] */
void ap_products(size_t rows, size_t columns, const ap_terms *t, const ap_f32 *a, size_t a_row, const ap_f32 *b,
                 ap_f32 *c, size_t c_row, int mode);
/* c[m][n] (+)= dot of row m of a and row n of b, `length` elements each */
void ap_dots(size_t rows, size_t columns, const ap_f32 *a, size_t a_row, const ap_f32 *b, size_t b_row, size_t length,
             ap_f32 *c, size_t c_row, int mode);
void ap_add_rows(size_t rows, size_t columns, const ap_f32 *x, ap_f32 *sums); /* sums += rows of x, in their order */
void ap_add_to_rows(size_t rows, size_t columns, const ap_f32 *x, ap_f32 *y);   /* each row of y += x */
ap_f32 ap_sum(const ap_f32 *x, size_t count);                                   /* 16 lanes and a tree */
ap_f32 ap_tree(const ap_f32 *lanes);                                            /* the sum of 16 */

#include "activation.h"
#include "broadcast.h"
#include "cast.h"
#include "convolution.h"
#include "convolution_nchw.h"
#include "dropout.h"
#include "elementwise.h"
#include "elementwise_loss.h"
#include "group_normalization.h"
#include "linear.h"
#include "loss.h"
#include "movement.h"
#include "normalization.h"
#include "normalization_nchw.h"
#include "optimizer.h"
#include "pooling.h"
#include "recurrent.h"
#include "region.h"
#include "unary.h"

#endif
