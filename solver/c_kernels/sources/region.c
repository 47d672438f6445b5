#include "ap.h"

/* Calls EACH for every element of a region: i is its place in x, j that in y */
#define WALK(EACH)                                                                                                     \
    {                                                                                                                  \
        const size_t *n = s->extent, *f = s->from_step, *t = s->to_step;                                               \
        for (size_t i0 = 0; i0 < n[0]; i0++)                                                                           \
            for (size_t i1 = 0; i1 < n[1]; i1++)                                                                       \
                for (size_t i2 = 0; i2 < n[2]; i2++)                                                                   \
                    for (size_t i3 = 0; i3 < n[3]; i3++)                                                               \
                        for (size_t i4 = 0; i4 < n[4]; i4++) {                                                         \
                            size_t i = s->from + i0 * f[0] + i1 * f[1] + i2 * f[2] + i3 * f[3] + i4 * f[4];            \
                            size_t j = s->to + i0 * t[0] + i1 * t[1] + i2 * t[2] + i3 * t[3] + i4 * t[4];              \
                            for (size_t i5 = 0; i5 < n[5]; i5++, i += f[5], j += t[5]) { EACH; }                       \
                        }                                                                                              \
    }

void ap_move(const ap_region *s, const ap_f32 *x, ap_f32 *y) WALK(y[j] = x[i])

void ap_move_add(const ap_region *s, const ap_f32 *x, ap_f32 *y) WALK(y[j] += x[i])

void ap_move_items(const ap_region *s, size_t bytes, const void *x, void *y)
{
    const unsigned char *from = (const unsigned char *)x;
    unsigned char *to = (unsigned char *)y;
    WALK(ap_copy(to + j * bytes, from + i * bytes, bytes))
}

void ap_reduce_max_forward(const ap_region *s, const ap_f32 *x, ap_f32 *y, size_t count_y)
{
    ap_fill(y, -AP_INFINITY, count_y);
    WALK(if (x[i] > y[j] || !(x[i] == x[i])) y[j] = x[i])
}

void ap_reduce_max_backward(const ap_region *s, const ap_f32 *x, const ap_f32 *y, const ap_f32 *dy, ap_f32 *dx,
                            size_t count_y, ap_f32 *work)
{
    ap_fill(work, 0.0f, count_y);
    WALK(if (x[i] == y[j]) work[j] += 1.0f)
    for (size_t k = 0; k < count_y; k++) work[k] = dy[k] / work[k];
    WALK(dx[i] = x[i] == y[j] ? work[j] : 0.0f * work[j])
}
