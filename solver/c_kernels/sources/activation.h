/* Activations, element by element: y may be x, dx may be dy. */
#ifndef AP_ACTIVATION_H
#define AP_ACTIVATION_H
#include "ap.h"

void ap_relu_forward(const ap_f32 *x, ap_f32 *y, size_t count);
void ap_relu_backward(const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count);
void ap_relu6_forward(const ap_f32 *x, ap_f32 *y, size_t count);
void ap_clip_forward(const ap_f32 *x, ap_f32 *y, size_t count, ap_f32 least, ap_f32 most);
void ap_clip_backward(const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count, ap_f32 least, ap_f32 most);
void ap_clamp_backward(const ap_f32 *x, const ap_f32 *dy, ap_f32 *dx, size_t count, ap_f32 least, ap_f32 most);
void ap_sigmoid_forward(const ap_f32 *x, ap_f32 *y, size_t count);
void ap_sigmoid_backward(const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count);
void ap_tanh_forward(const ap_f32 *x, ap_f32 *y, size_t count);
void ap_tanh_backward(const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count);
void ap_gelu_forward(int exact, const ap_f32 *x, ap_f32 *y, size_t count);
void ap_gelu_backward(int exact, const ap_f32 *x, const ap_f32 *dy, ap_f32 *dx, size_t count);

/* Other operators undo the activation of their output before their derivatives; it is applied by the functions above. */
enum { AP_NONE, AP_RELU, AP_RELU6, AP_SIGMOID, AP_TANH };
void ap_deactivate(int activation, const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count);
#endif
