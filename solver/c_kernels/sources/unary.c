#include "ap.h"

static ap_f32 within_one(ap_f32 x) { return x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x; }

static ap_f32 value(int kind, ap_f32 alpha, ap_f32 beta, ap_f32 x)
{
    switch (kind) {
    case AP_EXP: return ap_exp(x);
    case AP_LOG: return ap_log(x);
    case AP_SQRT: return ap_sqrt(x);
    case AP_RECIPROCAL: return 1.0f / x;
    case AP_NEG: return -1.0f * x;
    case AP_ABS: return x > 0.0f ? x : x < 0.0f ? -x : x + 0.0f;
    case AP_ERF: return ap_erf(x);
    case AP_SOFTPLUS: return ap_softplus(x);
    case AP_LEAKY_RELU: return x > 0.0f ? x : alpha * x;
    case AP_ELU: return x > 0.0f ? x : alpha * ap_expm1(x);
    case AP_HARD_SIGMOID: return within_one(alpha * x + beta);
    case AP_HARD_SWISH: return x * within_one(x / 6.0f + 0.5f);
    default: return x * ap_sigmoid(alpha * x);
    }
}

static ap_f32 slope(int kind, ap_f32 alpha, ap_f32 v)
{
    switch (kind) {
    case AP_EXP: return v;
    case AP_LOG: return 1.0f / v;
    case AP_SQRT: return 0.5f / v;
    case AP_RECIPROCAL: return -(v * v);
    case AP_ABS: return v > 0.0f ? 1.0f : v < 0.0f ? -1.0f : v == 0.0f ? 0.0f : v;
    case AP_ERF: return ap_exp(-(v * v)) * 1.1283791670955126f;
    case AP_SOFTPLUS: return ap_sigmoid(v);
    case AP_LEAKY_RELU: return v > 0.0f ? 1.0f : alpha;
    case AP_ELU: return v > 0.0f ? 1.0f : alpha > 0.0f ? v + alpha : alpha * ap_exp(v);
    case AP_HARD_SIGMOID: return v > 0.0f && v < 1.0f ? alpha : 0.0f;
    case AP_HARD_SWISH: return v <= -3.0f ? 0.0f : v >= 3.0f ? 1.0f : v / 3.0f + 0.5f;
    default: {
        const ap_f32 gate = ap_sigmoid(alpha * v);
        return ((1.0f - gate) * v * alpha + 1.0f) * gate;
    }
    }
}

void ap_unary_forward(int kind, size_t count, ap_f32 alpha, ap_f32 beta, const ap_f32 *x, ap_f32 *y)
{
    for (size_t i = 0; i < count; i++) y[i] = value(kind, alpha, beta, x[i]);
}

void ap_unary_backward(int kind, size_t count, ap_f32 alpha, ap_f32 beta, const ap_f32 *from, const ap_f32 *dy,
                       ap_f32 *dx)
{
    (void)beta;
    for (size_t i = 0; i < count; i++) dx[i] = kind == AP_NEG ? -1.0f * dy[i] : dy[i] * slope(kind, alpha, from[i]);
}
