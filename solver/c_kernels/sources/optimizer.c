#include "ap.h"

/* The gradient of element i with its factor and the decay that is a part of it */
static ap_f32 gradient(const ap_rules *s, ap_f32 factor, const ap_f32 *w, const ap_f32 *g, size_t i)
{
    const ap_f32 d = g[i] * factor;
    return s->decay > 0.0f && !s->decoupled ? d + w[i] * s->decay : d;
}

void ap_sgd(const ap_rules *s, ap_f32 factor, ap_f32 *w, const ap_f32 *g, ap_f32 *momentum)
{
    for (size_t i = 0; i < s->count; i++) {
        ap_f32 d = gradient(s, factor, w, g, i);
        if (momentum) {
            momentum[i] = momentum[i] * s->momentum + d;
            d = s->nesterov ? d + momentum[i] * s->momentum : momentum[i];
        }
        w[i] -= d * s->rate;
    }
}

/* 1 - beta^update, with every digit where beta is near 1 */
static ap_f32 correction(ap_f32 log_beta, uint32_t update) { return -ap_expm1(log_beta * (ap_f32)update); }

void ap_adam(const ap_rules *s, ap_f32 factor, uint32_t update, ap_f32 *w, const ap_f32 *g, ap_f32 *first, ap_f32 *second)
{
    const ap_f32 root = ap_sqrt(correction(s->log_beta2, update)), plain = s->rate / correction(s->log_beta1, update);
    const ap_f32 rate = s->epsilon_hat ? plain * root : plain, divisor = s->epsilon_hat ? 1.0f : root;
    const ap_f32 kept = s->decoupled ? 1.0f - s->rate * s->decay : 1.0f;
    for (size_t i = 0; i < s->count; i++) {
        const ap_f32 d = gradient(s, factor, w, g, i);
        first[i] = first[i] * s->beta1 + d * s->rest1;
        second[i] = second[i] * s->beta2 + d * d * s->rest2;
        w[i] = w[i] * kept - first[i] / (ap_sqrt(second[i]) / divisor + s->epsilon) * rate;
    }
}

void ap_rmsprop(const ap_rules *s, ap_f32 factor, ap_f32 *w, const ap_f32 *g, ap_f32 *second, ap_f32 *first,
                ap_f32 *momentum)
{
    for (size_t i = 0; i < s->count; i++) {
        const ap_f32 d = gradient(s, factor, w, g, i);
        second[i] = second[i] * s->beta2 + d * d * s->rest2;
        ap_f32 square = second[i];
        if (first) {
            first[i] = first[i] * s->beta2 + d * s->rest2;
            square -= first[i] * first[i];
            if (square < 0.0f) square = 0.0f;
        }
        ap_f32 step = d / (ap_sqrt(square) + s->epsilon);
        if (momentum) {
            momentum[i] = momentum[i] * s->momentum + step;
            step = momentum[i];
        }
        w[i] -= step * s->rate;
    }
}

void ap_adagrad(const ap_rules *s, ap_f32 factor, uint32_t update, ap_f32 *w, const ap_f32 *g, ap_f32 *sum)
{
    const ap_f32 rate = s->rate / (1.0f + (ap_f32)(update - 1u) * s->rate_decay);
    for (size_t i = 0; i < s->count; i++) {
        const ap_f32 d = gradient(s, factor, w, g, i);
        sum[i] += d * d;
        w[i] -= d / (ap_sqrt(sum[i]) + s->epsilon) * rate;
    }
}

/* Newton's steps from a power of two, which double the digits: within one unit in the last place of a double. x >= 0 */
static double root_of(double x)
{
    if (!(x > 0.0) || x > DBL_MAX) return x;
    union { uint64_t bits; double value; } u;
    u.value = x;
    const int64_t e = (int64_t)(u.bits >> 52) - 1023;
    u.bits = (uint64_t)(e / 2 + 1023) << 52;
    double root = u.value;
    for (int32_t k = 0; k < 8; k++) root = 0.5 * (root + x / root);
    return root;
}

void ap_clip_by_norm(size_t count, const ap_gradient *gradients, double most, double divisor, int skips, double *factor,
                     int64_t *updates)
{
    double sum = 0.0;
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < gradients[k].count; i++) sum += (double)gradients[k].from[i] * (double)gradients[k].from[i];
    if (skips && !(sum <= DBL_MAX)) {
        *factor = 0.0;
        return;
    }
    double part = 1.0;
    if (most > 0.0) {
        part = most / (root_of(sum) / divisor + 1e-6);
        if (!(part < 1.0)) part = 1.0;
    }
    *factor = part / divisor;
    if (updates) *updates += 1;
}
