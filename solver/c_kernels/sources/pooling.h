/* Pooling over images [examples, height, width, channels]. */
#ifndef AP_POOLING_H
#define AP_POOLING_H
#include "ap.h"

typedef struct {
    size_t examples, high, wide, channels, out_high, out_wide;
    size_t kernel_high, kernel_wide, stride_high, stride_wide, dilation_high, dilation_wide, top, left;
    size_t counts_padding; /* of the mean: padding counts as zeros, but for what lies beyond `bottom` and `right` */
    size_t bottom, right;
} ap_pool;

/* `taken` may be 0. It gets the distance of the first largest element's tap from the last one, plus 1; 0 where there is
   padding alone, or where the largest is NaN, which is larger than all. */
void ap_maxpool_forward(const ap_pool *s, const ap_f32 *x, ap_f32 *y, uint8_t *taken);
void ap_maxpool_backward(const ap_pool *s, const uint8_t *taken, const ap_f32 *dy, ap_f32 *dx);
void ap_meanpool_forward(const ap_pool *s, const ap_f32 *x, ap_f32 *y);
void ap_meanpool_backward(const ap_pool *s, const ap_f32 *dy, ap_f32 *dx);
#endif
