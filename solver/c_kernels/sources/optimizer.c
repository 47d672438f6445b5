#include "ap.h"

/* The gradient of element i with its factor and the decay that is a part of it */
static ap_f32 gradient(const ap_rules *s, double factor, const ap_f32 *w, const ap_f32 *g, size_t i)
{
    ap_f32 d = factor == 1.0 ? g[i] : g[i] * (ap_f32)factor;
    if (s->decay > 0.0 && !s->decoupled) d += w[i] * (ap_f32)s->decay;
    return d;
}

void ap_sgd(const ap_rules *s, double factor, ap_f32 *w, const ap_f32 *g, ap_f32 *momentum)
{
    const ap_f32 rate = (ap_f32)s->rate, kept = (ap_f32)s->momentum;
    for (size_t i = 0; i < s->count; i++) {
        ap_f32 d = gradient(s, factor, w, g, i);
        if (momentum) {
            momentum[i] = momentum[i] * kept + d;
            d = s->nesterov ? d + momentum[i] * kept : momentum[i];
        }
        w[i] -= d * rate;
    }
}

void ap_adam(const ap_rules *s, double factor, uint32_t update, ap_f32 *w, const ap_f32 *g, ap_f32 *first, ap_f32 *second)
{
    const double correction1 = 1.0 - ap_power(s->beta1, update), correction2 = 1.0 - ap_power(s->beta2, update);
    const ap_f32 root = (ap_f32)ap_sqrt64(correction2);
    const ap_f32 rate = (ap_f32)(s->epsilon_hat ? s->rate * ap_sqrt64(correction2) / correction1 : s->rate / correction1);
    const ap_f32 b1 = (ap_f32)s->beta1, b2 = (ap_f32)s->beta2, epsilon = (ap_f32)s->epsilon;
    const ap_f32 c1 = (ap_f32)(1.0 - s->beta1), c2 = (ap_f32)(1.0 - s->beta2);
    const ap_f32 shrink = (ap_f32)(1.0 - s->rate * s->decay);
    for (size_t i = 0; i < s->count; i++) {
        const ap_f32 d = gradient(s, factor, w, g, i);
        first[i] = first[i] * b1 + d * c1;
        second[i] = second[i] * b2 + d * d * c2;
        const ap_f32 size = s->epsilon_hat ? ap_sqrt(second[i]) : ap_sqrt(second[i]) / root;
        if (s->decoupled) w[i] *= shrink;
        w[i] -= first[i] / (size + epsilon) * rate;
    }
}

void ap_rmsprop(const ap_rules *s, double factor, ap_f32 *w, const ap_f32 *g, ap_f32 *second, ap_f32 *first,
                ap_f32 *momentum)
{
    const ap_f32 alpha = (ap_f32)s->beta2, rest = (ap_f32)(1.0 - s->beta2), rate = (ap_f32)s->rate;
    for (size_t i = 0; i < s->count; i++) {
        const ap_f32 d = gradient(s, factor, w, g, i);
        second[i] = second[i] * alpha + d * d * rest;
        ap_f32 square = second[i];
        if (first) {
            first[i] = first[i] * alpha + d * rest;
            square -= first[i] * first[i];
            if (square < 0.0f) square = 0.0f;
        }
        ap_f32 step = d / (ap_sqrt(square) + (ap_f32)s->epsilon);
        if (momentum) {
            momentum[i] = momentum[i] * (ap_f32)s->momentum + step;
            step = momentum[i];
        }
        w[i] -= step * rate;
    }
}

/* `beta1` is the decay of the rate: rate / (1 + (update - 1) beta1) */
void ap_adagrad(const ap_rules *s, double factor, uint32_t update, ap_f32 *w, const ap_f32 *g, ap_f32 *sum)
{
    const ap_f32 rate = (ap_f32)(s->rate / (1.0 + (double)(update - 1u) * s->beta1));
    for (size_t i = 0; i < s->count; i++) {
        const ap_f32 d = gradient(s, factor, w, g, i);
        sum[i] += d * d;
        w[i] -= d / (ap_sqrt(sum[i]) + (ap_f32)s->epsilon) * rate;
    }
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
        part = most / (ap_sqrt64(sum) / divisor + 1e-6);
        if (!(part < 1.0)) part = 1.0;
    }
    *factor = part / divisor;
    if (updates) *updates += 1;
}
