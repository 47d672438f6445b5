#include "ap.h"

/* Calls EACH with the index i of each element of an array of these extents, and its place j by `step` */
#define AP_WALK(EACH)                                                                                      \
    {                                                                                                      \
        size_t i = 0;                                                                                      \
        const size_t *n = s->extent, *t = s->step;                                                         \
        for (size_t i0 = 0; i0 < n[0]; i0++)                                                               \
            for (size_t i1 = 0; i1 < n[1]; i1++)                                                           \
                for (size_t i2 = 0; i2 < n[2]; i2++)                                                       \
                    for (size_t i3 = 0; i3 < n[3]; i3++)                                                   \
                        for (size_t i4 = 0; i4 < n[4]; i4++) {                                             \
                            size_t j = i0 * t[0] + i1 * t[1] + i2 * t[2] + i3 * t[3] + i4 * t[4];          \
                            for (size_t i5 = 0; i5 < n[5]; i5++, i++, j += t[5]) { EACH; }                 \
                        }                                                                                  \
    }

void ap_transpose(const ap_steps *s, const ap_f32 *x, ap_f32 *y) AP_WALK(y[i] = x[j])

void ap_take_block(const ap_block *s, const ap_f32 *x, ap_f32 *y)
{
    for (size_t o = 0; o < s->outer; o++)
        ap_copy(y + o * s->count * s->inner, x + (o * s->whole + s->start) * s->inner,
                s->count * s->inner * sizeof(ap_f32));
}

void ap_put_block(const ap_block *s, const ap_f32 *x, ap_f32 *y)
{
    for (size_t o = 0; o < s->outer; o++)
        ap_copy(y + (o * s->whole + s->start) * s->inner, x + o * s->count * s->inner,
                s->count * s->inner * sizeof(ap_f32));
}

void ap_zero_block(const ap_block *s, ap_f32 *y)
{
    for (size_t o = 0; o < s->outer; o++) ap_fill(y + (o * s->whole + s->start) * s->inner, 0.0f, s->count * s->inner);
}

/* The row that index k names; `rows` if it names none */
static size_t row_of(const void *index, size_t bytes, size_t k, size_t rows)
{
    int64_t value = bytes == 8 ? ((const int64_t *)index)[k] : ((const int32_t *)index)[k];
    if (value < 0) value += (int64_t)rows;
    return value >= 0 && value < (int64_t)rows ? (size_t)value : rows;
}

void ap_gather_forward(size_t outer, size_t rows, size_t inner, size_t count, const ap_f32 *x, const void *index,
                       size_t index_bytes, ap_f32 *y)
{
    for (size_t o = 0; o < outer; o++)
        for (size_t k = 0; k < count; k++, y += inner) {
            const size_t row = row_of(index, index_bytes, k, rows);
            if (row < rows)
                ap_copy(y, x + (o * rows + row) * inner, inner * sizeof(ap_f32));
            else
                ap_fill(y, 0.0f, inner);
        }
}

/* Derivatives of one row are added in the order of the indices */
void ap_gather_backward(size_t outer, size_t rows, size_t inner, size_t count, const void *index, size_t index_bytes,
                        const ap_f32 *dy, ap_f32 *dx)
{
    ap_fill(dx, 0.0f, outer * rows * inner);
    for (size_t o = 0; o < outer; o++)
        for (size_t k = 0; k < count; k++, dy += inner) {
            const size_t row = row_of(index, index_bytes, k, rows);
            if (row < rows) ap_accumulate(dx + (o * rows + row) * inner, dy, inner);
        }
}

void ap_reduce_forward(const ap_steps *s, ap_f32 scale, const ap_f32 *x, ap_f32 *y, size_t count_y)
{
    ap_fill(y, 0.0f, count_y);
    AP_WALK(y[j] += x[i])
    if (scale != 1.0f)
        for (size_t k = 0; k < count_y; k++) y[k] *= scale;
}

void ap_reduce_backward(const ap_steps *s, ap_f32 scale, const ap_f32 *dy, ap_f32 *dx) AP_WALK(dx[i] = dy[j] * scale)
