/* Weight updates, element by element. The gradient is multiplied by `factor` first; 0 leaves all as it is if `skips`. */
#ifndef AP_OPTIMIZER_H
#define AP_OPTIMIZER_H
#include "ap.h"

typedef struct {
    size_t count;
    int nesterov, decoupled, epsilon_hat, centered;
    ap_f32 rate, decay, momentum, beta1, beta2, epsilon;
    ap_f32 rest1, rest2, log_beta1, log_beta2; /* 1 - beta and ln beta, which the float beta has too few digits for */
    ap_f32 rate_decay;                         /* Adagrad: rate / (1 + (update - 1) rate_decay) */
} ap_rules;

void ap_sgd(const ap_rules *s, ap_f32 factor, ap_f32 *w, const ap_f32 *g, ap_f32 *momentum);
void ap_adam(const ap_rules *s, ap_f32 factor, uint32_t update, ap_f32 *w, const ap_f32 *g, ap_f32 *first, ap_f32 *second);
void ap_rmsprop(const ap_rules *s, ap_f32 factor, ap_f32 *w, const ap_f32 *g, ap_f32 *second, ap_f32 *first,
                ap_f32 *momentum);
void ap_adagrad(const ap_rules *s, ap_f32 factor, uint32_t update, ap_f32 *w, const ap_f32 *g, ap_f32 *sum);

/* The factor of all gradients: min(1, most / (norm + 1e-6)) / divisor, of the norm divided by `divisor`. Squares are
   added in double, gradient after gradient. With `skips` it is 0 where the sum is not finite; else `updates`, which may
   be 0, goes up by one. */
typedef struct {
    const ap_f32 *from;
    size_t count;
} ap_gradient;
void ap_clip_by_norm(size_t count, const ap_gradient *gradients, double most, double divisor, int skips, double *factor,
                     int64_t *updates);
#endif
