/* Convolutions over images [examples, height, width, channels]; weights [filters, height, width, channels / groups]. */
#ifndef AP_CONVOLUTION_H
#define AP_CONVOLUTION_H
#include "ap.h"

typedef struct {
    size_t examples, high, wide, channels;  /* of x */
    size_t out_high, out_wide, filters;     /* of y */
    size_t kernel_high, kernel_wide, stride_high, stride_wide, dilation_high, dilation_wide;
    size_t top, left;                       /* padding in front */
    size_t groups;
} ap_conv;

/* Outputs whose derivatives are summed together: rows of so many pixels, at least one row */
#define AP_CONV_BAND 64

/* `work` has a copy of the weights as [taps, channels, filters] */
void ap_conv_forward(const ap_conv *s, const ap_f32 *x, const ap_f32 *w, const ap_f32 *bias, ap_f32 *y, ap_f32 *work);
/* `work` has the same copy if the convolution is depthwise, and behind it a band of y if an activation is undone */
void ap_conv_backward_x(const ap_conv *s, int activation, const ap_f32 *w, const ap_f32 *y, const ap_f32 *dy,
                        ap_f32 *dx, ap_f32 *work);
/* dw or dbias may be 0. `work` has dw as [taps, channels, filters], and behind it the same band. */
void ap_conv_backward_w(const ap_conv *s, int activation, const ap_f32 *x, const ap_f32 *y, const ap_f32 *dy,
                        ap_f32 *dw, ap_f32 *dbias, ap_f32 *work);
/* The same with a transposed convolution's names: x and y change places. `work` is that of backward_x. */
void ap_conv_transpose_forward(const ap_conv *s, const ap_f32 *x, const ap_f32 *w, const ap_f32 *bias, ap_f32 *y,
                               ap_f32 *work);
#endif
