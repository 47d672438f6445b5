/* Convolutions over images [examples, channels, height, width]; weights [filters, channels / groups, height, width].

   Positions of the output are taken in blocks of AP_CONV_BLOCK; the elements that the taps of a block read lie side by
   side in `work`, with zeros for those outside the image. */
#ifndef AP_CONVOLUTION_NCHW_H
#define AP_CONVOLUTION_NCHW_H
#include "ap.h"

enum { AP_CONV_BLOCK = 32 };

/* `work` has a block of taps of one group, unless the kernel has one tap, stride 1 and no padding. */
void ap_conv_nchw_forward(const ap_conv *s, const ap_f32 *x, const ap_f32 *w, const ap_f32 *bias, ap_f32 *y,
                          ap_f32 *work);
/* `work` has the same block, and behind it one of a group's filters where an activation is undone. */
void ap_conv_nchw_backward_x(const ap_conv *s, int activation, const ap_f32 *w, const ap_f32 *y, const ap_f32 *dy,
                             ap_f32 *dx, ap_f32 *work);
/* dw or dbias may be 0. `work` has both blocks. */
void ap_conv_nchw_backward_w(const ap_conv *s, int activation, const ap_f32 *x, const ap_f32 *y, const ap_f32 *dy,
                             ap_f32 *dw, ap_f32 *dbias, ap_f32 *work);
/* y is what backward_x makes of x: `s` is the convolution from y to x. Then the bias. */
void ap_conv_nchw_transpose_forward(const ap_conv *s, const ap_f32 *x, const ap_f32 *w, const ap_f32 *bias, ap_f32 *y,
                                    ap_f32 *work);
/* sums[c] = the sum of channel c, in the order of memory */
void ap_sum_channels(size_t examples, size_t channels, size_t positions, const ap_f32 *x, ap_f32 *sums);
#endif
