#include "ap.h"

void ap_accumulate(ap_f32 *total, const ap_f32 *partial, size_t count)
{
    for (size_t i = 0; i < count; i++) total[i] += partial[i];
}

static ap_f32 paired(int kind, ap_f32 a, ap_f32 b)
{
    switch (kind) {
    case AP_ADDITION: return a + b;
    case AP_SUBTRACTION: return a - b;
    case AP_DIVISION: return a / b;
    default: return a * b;
    }
}

/* The terms of element i in the derivatives of a and b; a quotient divides twice, as b^2 may underflow */
static ap_f32 term_a(int kind, ap_f32 dz, const ap_f32 *b, size_t j)
{
    return kind == AP_MULTIPLICATION ? dz * b[j] : kind == AP_DIVISION ? dz / b[j] : dz;
}

static ap_f32 term_b(int kind, ap_f32 dz, const ap_f32 *a, size_t ja, const ap_f32 *b, size_t jb)
{
    if (kind == AP_DIVISION) return -(dz / b[jb] / b[jb] * a[ja]);
    return kind == AP_MULTIPLICATION ? dz * a[ja] : kind == AP_SUBTRACTION ? -1.0f * dz : dz;
}

/* Calls EACH with the index i of the result's element and those of both operands, in the order of the result */
#define AP_EACH(EACH)                                                                                               \
    {                                                                                                               \
        size_t i = 0;                                                                                               \
        const size_t *n = p->extent, *sa = p->step_a, *sb = p->step_b;                                              \
        for (size_t i0 = 0; i0 < n[0]; i0++)                                                                        \
            for (size_t i1 = 0; i1 < n[1]; i1++)                                                                    \
                for (size_t i2 = 0; i2 < n[2]; i2++)                                                                \
                    for (size_t i3 = 0; i3 < n[3]; i3++)                                                            \
                        for (size_t i4 = 0; i4 < n[4]; i4++) {                                                      \
                            size_t ja = i0 * sa[0] + i1 * sa[1] + i2 * sa[2] + i3 * sa[3] + i4 * sa[4];             \
                            size_t jb = i0 * sb[0] + i1 * sb[1] + i2 * sb[2] + i3 * sb[3] + i4 * sb[4];             \
                            for (size_t i5 = 0; i5 < n[5]; i5++, i++, ja += sa[5], jb += sb[5]) { EACH; }           \
                        }                                                                                           \
    }

static size_t count_of(const ap_pairs *p)
{
    size_t count = 1;
    for (size_t axis = 0; axis < 6; axis++) count *= p->extent[axis];
    return count;
}

void ap_pair_forward(int kind, const ap_pairs *p, const ap_f32 *a, const ap_f32 *b, ap_f32 *y)
{
    AP_EACH(y[i] = paired(kind, a[ja], b[jb]))
}

void ap_pair_backward(int kind, int activation, const ap_pairs *p, const ap_f32 *a, const ap_f32 *b, const ap_f32 *y,
                      const ap_f32 *dy, ap_f32 *da, size_t count_a, ap_f32 *db, size_t count_b, ap_f32 *work)
{
    const size_t count = count_of(p);
    const ap_f32 *dz = dy;
    if (activation) {
        ap_deactivate(activation, y, dy, work, count);
        dz = work;
    }
    if (da && count_a < count) ap_fill(da, 0.0f, count_a);
    if (da) AP_EACH(const ap_f32 term = term_a(kind, dz[i], b, jb);
                    da[ja] = count_a < count ? da[ja] + term : term; (void)jb)
    if (db && count_b < count) ap_fill(db, 0.0f, count_b);
    if (db) AP_EACH(const ap_f32 term = term_b(kind, dz[i], a, ja, b, jb);
                    db[jb] = count_b < count ? db[jb] + term : term; (void)ja)
}
