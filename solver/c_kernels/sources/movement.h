/* Copies of elements to other places, and sums over axes. */
#ifndef AP_MOVEMENT_H
#define AP_MOVEMENT_H
#include "ap.h"

typedef struct {
    size_t extent[6]; /* of y, axes of extent 1 in front */
    size_t step[6];   /* elements of x from one index of y to the next */
} ap_steps;
void ap_transpose(const ap_steps *s, const ap_f32 *x, ap_f32 *y);

/* A block [outer, count, inner] of `whole` elements of the axis, from `start`, and the same block alone */
typedef struct {
    size_t outer, whole, start, count, inner;
} ap_block;
void ap_take_block(const ap_block *s, const ap_f32 *x, ap_f32 *y);
void ap_put_block(const ap_block *s, const ap_f32 *x, ap_f32 *y);
void ap_zero_block(const ap_block *s, ap_f32 *y);

/* Rows of x [outer, rows, inner] that indices name, which have 4 or 8 bytes; one below 0 counts from the end, one that is
   none gives zeros */
void ap_gather_forward(size_t outer, size_t rows, size_t inner, size_t count, const ap_f32 *x, const void *index,
                       size_t index_bytes, ap_f32 *y);
void ap_gather_backward(size_t outer, size_t rows, size_t inner, size_t count, const void *index, size_t index_bytes,
                        const ap_f32 *dy, ap_f32 *dx);

/* y [kept axes] = scale times the sum over the others, in the order of x's memory; `step` is 0 on axes that are summed */
void ap_reduce_forward(const ap_steps *s, ap_f32 scale, const ap_f32 *x, ap_f32 *y, size_t count_y);
void ap_reduce_backward(const ap_steps *s, ap_f32 scale, const ap_f32 *dy, ap_f32 *dx);
#endif
