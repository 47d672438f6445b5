/* Batch normalisation over [rows, channels], and layer normalisation over [rows, columns]. */
#ifndef AP_NORMALIZATION_H
#define AP_NORMALIZATION_H
#include "ap.h"

/* y may be x, dx may be dy. `running_mean` and `running_variance` are updated, unless they are 0: the latter gets `share`
   of the biased variance. `work` has a float a channel. */
void ap_batchnorm_forward(size_t rows, size_t channels, ap_f32 epsilon, ap_f32 momentum, ap_f32 share,
                          const ap_f32 *x, const ap_f32 *scale, const ap_f32 *shift, ap_f32 *running_mean,
                          ap_f32 *running_variance, ap_f32 *y, ap_f32 *mean, ap_f32 *inverse_deviation, ap_f32 *work);
void ap_batchnorm_frozen_forward(size_t rows, size_t channels, ap_f32 epsilon, const ap_f32 *x, const ap_f32 *scale,
                                 const ap_f32 *shift, const ap_f32 *mean, const ap_f32 *variance, ap_f32 *y);
/* dx, and dscale with dshift, may be 0. `work` has 4 floats a channel. */
void ap_batchnorm_backward(size_t rows, size_t channels, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *mean,
                           const ap_f32 *inverse_deviation, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dscale,
                           ap_f32 *dshift, ap_f32 *work);
void ap_batchnorm_frozen_backward(size_t rows, size_t channels, ap_f32 epsilon, const ap_f32 *x, const ap_f32 *scale,
                                  const ap_f32 *mean, const ap_f32 *variance, const ap_f32 *dy, ap_f32 *dx,
                                  ap_f32 *dscale, ap_f32 *dshift);

void ap_layernorm_forward(size_t rows, size_t columns, ap_f32 epsilon, const ap_f32 *x, const ap_f32 *scale,
                          const ap_f32 *shift, ap_f32 *y, ap_f32 *mean, ap_f32 *inverse_deviation);
void ap_layernorm_backward(size_t rows, size_t columns, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *mean,
                           const ap_f32 *inverse_deviation, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dscale,
                           ap_f32 *dshift);
#endif
