#include "ap.h"

/* TERM, BY_X and BY_T compute the loss of an element and its derivatives by x and by t, with the parameter p */
#define LOSS(NAME, TERM, BY_X, BY_T)                                                                                  \
    void NAME##_forward(const ap_elements *s, const ap_f32 *x, const ap_f32 *t, ap_f32 *y)                            \
    {                                                                                                                 \
        ap_f32 total = 0.0f;                                                                                          \
        for (size_t first = 0; first < s->count; first += 256) {                                                      \
            ap_f32 part = 0.0f;                                                                                       \
            for (size_t i = first; i < s->count && i < first + 256; i++) {                                            \
                const ap_f32 loss = TERM(x[i], t[i], s->parameter);                                                   \
                if (s->each)                                                                                          \
                    y[i] = loss;                                                                                      \
                else                                                                                                  \
                    part += loss;                                                                                     \
            }                                                                                                         \
            total += part;                                                                                            \
        }                                                                                                             \
        if (!s->each) *y = total * s->scale;                                                                          \
    }                                                                                                                 \
    void NAME##_backward(const ap_elements *s, const ap_f32 *x, const ap_f32 *t, const ap_f32 *dy, ap_f32 *dx,        \
                         ap_f32 *dt)                                                                                  \
    {                                                                                                                 \
        for (size_t i = 0; i < s->count; i++) {                                                                       \
            const ap_f32 factor = (s->each ? dy[i] : *dy) * s->scale, v = x[i], u = t ? t[i] : 0.0f;                   \
            if (dx) dx[i] = BY_X(v, u, s->parameter) * factor;                                                        \
            if (dt) dt[i] = BY_T(v, u, s->parameter) * factor;                                                        \
        }                                                                                                             \
    }

static ap_f32 sign(ap_f32 d) { return d > 0.0f ? 1.0f : d < 0.0f ? -1.0f : d; }
static ap_f32 clip(ap_f32 d, ap_f32 least, ap_f32 most) { return d < least ? least : d > most ? most : d; }
static ap_f32 distance(ap_f32 d) { return d < 0.0f ? -d : d; }

#define SQUARE(X, T, P) ((X - T) * (X - T))
#define SQUARE_BY_X(X, T, P) (2.0f * (X - T))
#define SQUARE_BY_T(X, T, P) (-2.0f * (X - T))
LOSS(ap_squared_error, SQUARE, SQUARE_BY_X, SQUARE_BY_T)

#define ABSOLUTE(X, T, P) distance(X - T)
#define ABSOLUTE_BY_X(X, T, P) sign(X - T)
#define ABSOLUTE_BY_T(X, T, P) (-sign(X - T))
LOSS(ap_absolute_error, ABSOLUTE, ABSOLUTE_BY_X, ABSOLUTE_BY_T)

/* m (2 d - m) / 2 with the distance d and m = min(d, delta) */
static ap_f32 huber(ap_f32 d, ap_f32 delta)
{
    const ap_f32 m = d > delta ? delta : d;
    return m * (2.0f * d - m) * 0.5f;
}
#define HUBER(X, T, P) huber(distance(X - T), P)
#define HUBER_BY_X(X, T, P) clip(X - T, -(P), P)
#define HUBER_BY_T(X, T, P) (-clip(X - T, -(P), P))
LOSS(ap_huber, HUBER, HUBER_BY_X, HUBER_BY_T)

static ap_f32 within(ap_f32 x, ap_f32 epsilon) { return clip(x, epsilon, 1.0f - epsilon); }
static ap_f32 of_probability(ap_f32 x, ap_f32 t) { return -(t * ap_log(x) + (1.0f - t) * ap_log(1.0f - x)); }
static ap_f32 of_probability_by_x(ap_f32 x, ap_f32 t) { return (1.0f - t) / (1.0f - x) - t / x; }
static ap_f32 of_probability_by_t(ap_f32 x) { return ap_log(1.0f - x) - ap_log(x); }
#define PROBABILITY(X, T, P) of_probability(within(X, P), T)
#define PROBABILITY_BY_X(X, T, P) of_probability_by_x(within(X, P), T)
#define PROBABILITY_BY_T(X, T, P) of_probability_by_t(within(X, P))
LOSS(ap_binary_cross_entropy, PROBABILITY, PROBABILITY_BY_X, PROBABILITY_BY_T)

static ap_f32 raised(ap_f32 x, ap_f32 least) { return x < least ? least : x; }
static ap_f32 bounded_log(ap_f32 x) { return raised(ap_log(x), -100.0f); }
#define CLAMPED(X, T, P) (-(T * bounded_log(X) + (1.0f - T) * bounded_log(1.0f - X)))
#define CLAMPED_BY_X(X, T, P) ((X - T) / raised((1.0f - X) * X, 1e-12f))
#define CLAMPED_BY_T(X, T, P) (bounded_log(1.0f - X) - bounded_log(X))
LOSS(ap_binary_cross_entropy_clamped, CLAMPED, CLAMPED_BY_X, CLAMPED_BY_T)

/* max(x, 0) - x t + ln(1 + e^-|x|) */
#define LOGITS(X, T, P) (raised(X, 0.0f) - X * T + ap_softplus(-distance(X)))
#define LOGITS_BY_X(X, T, P) (ap_sigmoid(X) - T)
#define LOGITS_BY_T(X, T, P) (-(X))
LOSS(ap_binary_cross_entropy_logits, LOGITS, LOGITS_BY_X, LOGITS_BY_T)
