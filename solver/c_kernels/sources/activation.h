/* Activations, element by element: y may be x, dx may be dy. */
#ifndef AP_ACTIVATION_H
#define AP_ACTIVATION_H
#include "ap.h"

void ap_relu_forward(const ap_f32 *x, ap_f32 *y, size_t count);
void ap_relu_backward(const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count);
void ap_clip_forward(const ap_f32 *x, ap_f32 *y, size_t count, ap_f32 least, ap_f32 most);
void ap_clip_backward(const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count, ap_f32 least, ap_f32 most);
void ap_clamp_backward(const ap_f32 *x, const ap_f32 *dy, ap_f32 *dx, size_t count, ap_f32 least, ap_f32 most);
void ap_sigmoid_forward(const ap_f32 *x, ap_f32 *y, size_t count);
void ap_sigmoid_backward(const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count);
void ap_tanh_forward(const ap_f32 *x, ap_f32 *y, size_t count);
void ap_tanh_backward(const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count);
void ap_gelu_forward(int exact, const ap_f32 *x, ap_f32 *y, size_t count);
void ap_gelu_backward(int exact, const ap_f32 *x, const ap_f32 *dy, ap_f32 *dx, size_t count);

/* What other operators apply to their own output: a pointer, so that a program has the functions that it names, and no
   others. 0 stands for none. */
typedef struct {
    void (*forward)(const ap_f32 *x, ap_f32 *y, size_t count);
    void (*backward)(const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count);
} ap_activation;
extern const ap_activation ap_with_relu, ap_with_relu6, ap_with_sigmoid, ap_with_tanh;
#endif
