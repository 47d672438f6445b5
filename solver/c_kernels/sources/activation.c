/* Loops without branches inside, which compilers make vectors of. NaN goes through. */
#include "ap.h"

void ap_relu_forward(const ap_f32 *x, ap_f32 *y, size_t count)
{
    for (size_t i = 0; i < count; i++) y[i] = x[i] <= 0.0f ? 0.0f : x[i];
}

void ap_relu_backward(const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count)
{
    for (size_t i = 0; i < count; i++) dx[i] = (y[i] > 0.0f ? 1.0f : 0.0f) * dy[i];
}

void ap_clip_forward(const ap_f32 *x, ap_f32 *y, size_t count, ap_f32 least, ap_f32 most)
{
    if (!(least == least && most == most)) { /* a bound is NaN */
        ap_fill(y, least + most, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const ap_f32 v = x[i] < least ? least : x[i];
        y[i] = v > most ? most : v;
    }
}

void ap_clip_backward(const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count, ap_f32 least, ap_f32 most)
{
    for (size_t i = 0; i < count; i++) {
        const ap_f32 above = y[i] > least ? 1.0f : 0.0f;
        dx[i] = (y[i] < most ? above : 0.0f) * dy[i];
    }
}

/* As of clip, of what lies on a bound, too: reads x */
void ap_clamp_backward(const ap_f32 *x, const ap_f32 *dy, ap_f32 *dx, size_t count, ap_f32 least, ap_f32 most)
{
    for (size_t i = 0; i < count; i++) dx[i] = dy[i] * (x[i] >= least && x[i] <= most ? 1.0f : 0.0f);
}

void ap_relu6_forward(const ap_f32 *x, ap_f32 *y, size_t count) { ap_clip_forward(x, y, count, 0.0f, 6.0f); }

void ap_sigmoid_forward(const ap_f32 *x, ap_f32 *y, size_t count)
{
    for (size_t i = 0; i < count; i++) y[i] = ap_sigmoid(x[i]);
}

void ap_sigmoid_backward(const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count)
{
    for (size_t i = 0; i < count; i++) dx[i] = dy[i] * (y[i] * (1.0f - y[i]));
}

void ap_tanh_forward(const ap_f32 *x, ap_f32 *y, size_t count)
{
    for (size_t i = 0; i < count; i++) y[i] = ap_tanh(x[i]);
}

void ap_tanh_backward(const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count)
{
    for (size_t i = 0; i < count; i++) dx[i] = dy[i] * (1.0f - y[i] * y[i]);
}

void ap_deactivate(int activation, const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx, size_t count)
{
    switch (activation) {
    case AP_RELU: ap_relu_backward(y, dy, dx, count); break;
    case AP_RELU6: ap_clip_backward(y, dy, dx, count, 0.0f, 6.0f); break;
    case AP_SIGMOID: ap_sigmoid_backward(y, dy, dx, count); break;
    case AP_TANH: ap_tanh_backward(y, dy, dx, count); break;
    default: ap_copy(dx, dy, count * sizeof(ap_f32));
    }
}

/* x times the normal distribution's sum up to x; or its approximation by tanh(sqrt(2 / pi) (x + 0.044715 x^3)) */
void ap_gelu_forward(int exact, const ap_f32 *x, ap_f32 *y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const ap_f32 v = x[i];
        if (exact)
            y[i] = v * (0.5f * (1.0f + ap_erf(v * 0.70710678118654752f)));
        else
            y[i] = v * (0.5f * (1.0f + ap_tanh(0.79788456080286536f * (v + 0.044715f * (v * v * v)))));
    }
}

void ap_gelu_backward(int exact, const ap_f32 *x, const ap_f32 *dy, ap_f32 *dx, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const ap_f32 v = x[i];
        ap_f32 slope;
        if (exact) {
            slope = 0.5f * (1.0f + ap_erf(v * 0.70710678118654752f));
            slope = slope + v * (0.39894228040143268f * ap_exp(-0.5f * (v * v)));
        } else {
            const ap_f32 t = ap_tanh(0.79788456080286536f * (v + 0.044715f * (v * v * v)));
            const ap_f32 inner = 0.79788456080286536f * (1.0f + 0.134145f * (v * v));
            slope = 0.5f * (1.0f + t) + 0.5f * v * ((1.0f - t * t) * inner);
        }
        dx[i] = dy[i] * slope;
    }
}
