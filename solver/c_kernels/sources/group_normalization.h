/* Normalisation of groups of channels of each example, and of rows by their root mean square. */
#ifndef AP_GROUP_NORMALIZATION_H
#define AP_GROUP_NORMALIZATION_H
#include "ap.h"

/* A row is one group of one example: [outer, inner] elements, each axis with its step; the channel of an element is its index
   on the outer axis (`channels_outside`) or on the inner one. `centred`: rows lose their mean. */
typedef struct {
    size_t examples, example_step, groups, group_step;
    size_t outer, outer_step, inner, inner_step, channels_outside, centred;
    ap_f32 epsilon;
} ap_groups;

/* y may be x, dx may be dy. `mean` and `inverse_deviation` have an element for each row; `mean` may be 0 if not `centred`. */
void ap_groupnorm_forward(const ap_groups *s, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *shift, ap_f32 *y,
                          ap_f32 *mean, ap_f32 *inverse_deviation);
/* dx, dscale and dshift may be 0, and so may what these do not read */
void ap_groupnorm_backward(const ap_groups *s, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *mean,
                           const ap_f32 *inverse_deviation, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dscale,
                           ap_f32 *dshift);
#endif
