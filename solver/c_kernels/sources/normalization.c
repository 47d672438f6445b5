#include "ap.h"

/* Sums over rows go row by row, those over the columns of a row in 16 lanes and a tree (ap_sum). */

/* Rows of a batch whose chain is one term of the sum of a channel: the sum of 10,000 rows in one chain is ten times as far
   from the exact one. */
enum { BLOCK = 64 };

static size_t block_of(size_t rows, size_t first) { return rows - first < BLOCK ? rows - first : BLOCK; }

void ap_batchnorm_forward(size_t rows, size_t channels, ap_f32 epsilon, ap_f32 momentum, ap_f32 share,
                          const ap_f32 *x, const ap_f32 *scale, const ap_f32 *shift, ap_f32 *running_mean,
                          ap_f32 *running_variance, ap_f32 *y, ap_f32 *mean, ap_f32 *inverse_deviation, ap_f32 *work)
{
    const ap_f32 part = 1.0f / (ap_f32)rows;
    ap_fill(mean, 0.0f, channels);
    for (size_t first = 0; first < rows; first += BLOCK) {
        ap_fill(work, 0.0f, channels);
        ap_add_rows(block_of(rows, first), channels, x + first * channels, work);
        ap_accumulate(mean, work, channels);
    }
    for (size_t c = 0; c < channels; c++) mean[c] *= part;
    ap_fill(inverse_deviation, 0.0f, channels);
    for (size_t first = 0; first < rows; first += BLOCK) {
        ap_fill(work, 0.0f, channels);
        for (size_t r = first; r < first + block_of(rows, first); r++)
            for (size_t c = 0; c < channels; c++) {
                const ap_f32 d = x[r * channels + c] - mean[c];
                work[c] += d * d;
            }
        ap_accumulate(inverse_deviation, work, channels);
    }
    for (size_t c = 0; c < channels; c++) {
        const ap_f32 variance = inverse_deviation[c] * part;
        if (running_mean) {
            running_mean[c] = momentum * running_mean[c] + (1.0f - momentum) * mean[c];
            running_variance[c] = momentum * running_variance[c] + share * variance;
        }
        inverse_deviation[c] = 1.0f / ap_sqrt(variance + epsilon);
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < channels; c++)
            y[r * channels + c] = (x[r * channels + c] - mean[c]) * (inverse_deviation[c] * scale[c]) + shift[c];
}

void ap_batchnorm_frozen_forward(size_t rows, size_t channels, ap_f32 epsilon, const ap_f32 *x, const ap_f32 *scale,
                                 const ap_f32 *shift, const ap_f32 *mean, const ap_f32 *variance, ap_f32 *y)
{
    for (size_t c = 0; c < channels; c++) {
        const ap_f32 factor = scale[c] / ap_sqrt(variance[c] + epsilon);
        for (size_t r = 0; r < rows; r++) y[r * channels + c] = (x[r * channels + c] - mean[c]) * factor + shift[c];
    }
}

void ap_batchnorm_backward(size_t rows, size_t channels, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *mean,
                           const ap_f32 *inverse_deviation, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dscale,
                           ap_f32 *dshift, ap_f32 *work)
{
    ap_f32 *first = dshift ? dshift : work, *second = dscale ? dscale : work + channels;
    ap_f32 *first_part = work + 2 * channels, *second_part = work + 3 * channels;
    ap_fill(first, 0.0f, channels);
    if (dx || dscale) ap_fill(second, 0.0f, channels);
    for (size_t from = 0; from < rows; from += BLOCK) {
        ap_fill(first_part, 0.0f, channels);
        ap_add_rows(block_of(rows, from), channels, dy + from * channels, first_part);
        ap_accumulate(first, first_part, channels);
        if (!dx && !dscale) continue; /* the shift alone: there is no x */
        ap_fill(second_part, 0.0f, channels);
        for (size_t r = from; r < from + block_of(rows, from); r++)
            for (size_t c = 0; c < channels; c++)
                second_part[c] += dy[r * channels + c] * (x[r * channels + c] - mean[c]);
        ap_accumulate(second, second_part, channels);
    }
    if (!dx && !dscale) return;
    for (size_t c = 0; c < channels; c++) second[c] *= inverse_deviation[c];
    if (!dx) return;
    const ap_f32 part = 1.0f / (ap_f32)rows;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < channels; c++) {
            const size_t i = r * channels + c;
            const ap_f32 normal = (x[i] - mean[c]) * inverse_deviation[c];
            dx[i] = (dy[i] - part * (first[c] + normal * second[c])) * (scale[c] * inverse_deviation[c]);
        }
}

void ap_batchnorm_frozen_backward(size_t rows, size_t channels, ap_f32 epsilon, const ap_f32 *x, const ap_f32 *scale,
                                  const ap_f32 *mean, const ap_f32 *variance, const ap_f32 *dy, ap_f32 *dx,
                                  ap_f32 *dscale, ap_f32 *dshift)
{
    for (size_t c = 0; c < channels; c++) {
        const ap_f32 inverse = dx || dscale ? 1.0f / ap_sqrt(variance[c] + epsilon) : 0.0f;
        ap_f32 first = 0.0f, second = 0.0f;
        for (size_t r = 0; r < rows; r++) {
            const size_t i = r * channels + c;
            const ap_f32 d = dy[i];
            first += d;
            if (dscale) second += d * (x[i] - mean[c]);
            if (dx) dx[i] = d * (scale[c] * inverse);
        }
        if (dshift) dshift[c] = first;
        if (dscale) dscale[c] = second * inverse;
    }
}

void ap_layernorm_forward(size_t rows, size_t columns, ap_f32 epsilon, const ap_f32 *x, const ap_f32 *scale,
                          const ap_f32 *shift, ap_f32 *y, ap_f32 *mean, ap_f32 *inverse_deviation)
{
    const ap_f32 part = 1.0f / (ap_f32)columns;
    for (size_t r = 0; r < rows; r++, x += columns, y += columns) {
        const ap_f32 average = ap_sum(x, columns) * part;
        ap_f32 sum = 0.0f;
        for (size_t c = 0; c < columns; c++) sum += (x[c] - average) * (x[c] - average);
        const ap_f32 inverse = 1.0f / ap_sqrt(sum * part + epsilon);
        for (size_t c = 0; c < columns; c++) {
            const ap_f32 normal = (x[c] - average) * inverse;
            y[c] = shift ? normal * scale[c] + shift[c] : normal * scale[c];
        }
        if (mean) mean[r] = average;
        if (inverse_deviation) inverse_deviation[r] = inverse;
    }
}

void ap_layernorm_backward(size_t rows, size_t columns, const ap_f32 *x, const ap_f32 *scale, const ap_f32 *mean,
                           const ap_f32 *inverse_deviation, const ap_f32 *dy, ap_f32 *dx, ap_f32 *dscale,
                           ap_f32 *dshift)
{
    const ap_f32 part = 1.0f / (ap_f32)columns;
    if (dscale) ap_fill(dscale, 0.0f, columns);
    if (dshift) ap_fill(dshift, 0.0f, columns);
    for (size_t r = 0; r < rows; r++) {
        const ap_f32 *from = x + r * columns, *d = dy + r * columns;
        for (size_t c = 0; c < columns; c++) {
            if (dscale) dscale[c] += d[c] * ((from[c] - mean[r]) * inverse_deviation[r]);
            if (dshift) dshift[c] += d[c];
        }
        if (!dx) continue;
        ap_f32 first = 0.0f, second = 0.0f;
        for (size_t c = 0; c < columns; c++) {
            const ap_f32 g = d[c] * scale[c];
            first += g;
            second += g * ((from[c] - mean[r]) * inverse_deviation[r]);
        }
        for (size_t c = 0; c < columns; c++) {
            const ap_f32 normal = (from[c] - mean[r]) * inverse_deviation[r];
            dx[r * columns + c] = (d[c] * scale[c] - part * (first + normal * second)) * inverse_deviation[r];
        }
    }
}
