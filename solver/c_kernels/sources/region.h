/* Parts of arrays with steps of their own, which are copied, repeated, mirrored or added. */
#ifndef AP_REGION_H
#define AP_REGION_H
#include "ap.h"

/* Element (i0, ..., i5) of the region is x[from + sum of i * from_step] and y[to + sum of i * to_step]. Steps may be 0, or go
   backward: then they are the negative number modulo SIZE_MAX + 1. */
typedef struct {
    size_t extent[6], from_step[6], to_step[6];
    size_t from, to;
} ap_region;
void ap_move(const ap_region *s, const ap_f32 *x, ap_f32 *y);     /* y = x */
void ap_move_add(const ap_region *s, const ap_f32 *x, ap_f32 *y); /* y += x, in the order of the region */
void ap_move_items(const ap_region *s, size_t bytes, const void *x, void *y); /* y = x, of elements of `bytes` */

/* y = the largest of x along the axes whose `to_step` is 0; NaN is larger than all */
void ap_reduce_max_forward(const ap_region *s, const ap_f32 *x, ap_f32 *y, size_t count_y);
/* Each of k equal largest elements gets a k-th of dy. `work` has a float for each element of y. */
void ap_reduce_max_backward(const ap_region *s, const ap_f32 *x, const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx,
                            size_t count_y, ap_f32 *work);
#endif
