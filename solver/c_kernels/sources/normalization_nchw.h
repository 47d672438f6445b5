/* Batch normalisation over images [examples, channels, positions]. A sum over a channel takes the positions of each example
   in 16 lanes and a tree (as ap_sum), and example after example. */
#ifndef AP_NORMALIZATION_NCHW_H
#define AP_NORMALIZATION_NCHW_H
#include "ap.h"

typedef struct {
    size_t examples, channels, positions;
    ap_f32 epsilon, momentum, share;
} ap_planes;

/* y may be x, dx may be dy. `running_mean` and `running_variance` are updated, unless they are 0: the latter gets `share`
   of the biased variance. */
void ap_batchnorm_nchw_forward(const ap_planes *s, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *shift,
                               ap_f32 *running_mean, ap_f32 *running_variance, ap_f32 *y, ap_f32 *mean,
                               ap_f32 *inverse_deviation);
void ap_batchnorm_nchw_frozen_forward(const ap_planes *s, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *shift,
                                      const ap_f32 *mean, const ap_f32 *variance, ap_f32 *y);
/* dx, dscale and dshift may be 0, and so may what these do not read */
void ap_batchnorm_nchw_backward(const ap_planes *s, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *mean,
                                const ap_f32 *inverse_deviation, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dscale,
                                ap_f32 *dshift);
void ap_batchnorm_nchw_frozen_backward(const ap_planes *s, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *mean,
                                       const ap_f32 *variance, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dscale,
                                       ap_f32 *dshift);
#endif
