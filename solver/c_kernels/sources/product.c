/* Products and sums. Tiles and vector lanes hold different elements of the result, so their number never shows. */
#include "ap.h"

enum { ROWS = 4, LANES = 16 };

#if defined(__GNUC__) && !defined(AP_PLAIN) && (defined(__SSE__) || defined(__aarch64__))
#if defined(__AVX512F__)
enum { WIDE = 16 };
#elif defined(__AVX__)
enum { WIDE = 8 };
#else
enum { WIDE = 4 };
#endif
typedef ap_f32 vector __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
enum { TILE = 2 * WIDE };

static void tile(const ap_f32 *a, size_t a_segment, size_t a_row, size_t a_column, size_t segments, size_t length,
                 const ap_f32 *b, size_t b_row, ap_f32 *c, size_t c_row, int mode)
{
    vector c00 = {0}, c01 = {0}, c10 = {0}, c11 = {0}, c20 = {0}, c21 = {0}, c30 = {0}, c31 = {0};
    for (size_t s = 0; s < segments; s++, a += a_segment) {
        const ap_f32 *p = a;
        for (size_t k = 0; k < length; k++, p += a_column, b += b_row) {
            const vector b0 = *(const vector *)b, b1 = *(const vector *)(b + WIDE);
            const ap_f32 v0 = p[0], v1 = p[a_row], v2 = p[2 * a_row], v3 = p[3 * a_row];
            c00 += v0 * b0, c01 += v0 * b1;
            c10 += v1 * b0, c11 += v1 * b1;
            c20 += v2 * b0, c21 += v2 * b1;
            c30 += v3 * b0, c31 += v3 * b1;
        }
    }
    const vector sums[ROWS][2] = {{c00, c01}, {c10, c11}, {c20, c21}, {c30, c31}};
    for (size_t m = 0; m < ROWS; m++, c += c_row)
        for (size_t half = 0; half < 2; half++) {
            vector *to = (vector *)(c + half * WIDE);
            if (mode == AP_ADD)
                *to += sums[m][half];
            else
                *to = sums[m][half];
        }
}
#else
enum { TILE = 8 };

static void tile(const ap_f32 *a, size_t a_segment, size_t a_row, size_t a_column, size_t segments, size_t length,
                 const ap_f32 *b, size_t b_row, ap_f32 *c, size_t c_row, int mode)
{
    ap_f32 sums[ROWS][TILE] = {{0}};
    for (size_t s = 0; s < segments; s++, a += a_segment) {
        const ap_f32 *p = a;
        for (size_t k = 0; k < length; k++, p += a_column, b += b_row)
            for (size_t m = 0; m < ROWS; m++)
                for (size_t n = 0; n < TILE; n++) sums[m][n] += p[m * a_row] * b[n];
    }
    for (size_t m = 0; m < ROWS; m++, c += c_row)
        for (size_t n = 0; n < TILE; n++) c[n] = mode == AP_ADD ? c[n] + sums[m][n] : sums[m][n];
}
#endif

/* What tiles leave over: up to ROWS rows of one element, or of one short vector. Rows that are not there repeat the
   first, and their sums are left out. */
#define EDGE(NAME, TYPE)                                                                                            \
    static void NAME(size_t rows, const ap_f32 *a, size_t a_segment, size_t a_row, size_t a_column, size_t segments, \
                     size_t length, const ap_f32 *b, size_t b_row, ap_f32 *c, size_t c_row, int mode)               \
    {                                                                                                               \
        const size_t r1 = rows > 1 ? a_row : 0, r2 = rows > 2 ? 2 * a_row : 0, r3 = rows > 3 ? 3 * a_row : 0;       \
        TYPE c0 = {0}, c1 = {0}, c2 = {0}, c3 = {0};                                                                \
        for (size_t s = 0; s < segments; s++, a += a_segment) {                                                     \
            const ap_f32 *p = a;                                                                                    \
            for (size_t k = 0; k < length; k++, p += a_column, b += b_row) {                                        \
                const TYPE values = *(const TYPE *)b;                                                               \
                c0 += p[0] * values, c1 += p[r1] * values, c2 += p[r2] * values, c3 += p[r3] * values;              \
            }                                                                                                       \
        }                                                                                                           \
        const TYPE sums[ROWS] = {c0, c1, c2, c3};                                                                   \
        for (size_t m = 0; m < rows; m++, c += c_row) {                                                             \
            TYPE *to = (TYPE *)c;                                                                                   \
            if (mode == AP_ADD)                                                                                     \
                *to += sums[m];                                                                                     \
            else                                                                                                    \
                *to = sums[m];                                                                                      \
        }                                                                                                           \
    }

EDGE(column_at_the_edge, ap_f32)
#if defined(__GNUC__) && !defined(AP_PLAIN) && (defined(__SSE__) || defined(__aarch64__))
enum { SHORT = 4 };
typedef ap_f32 short_vector __attribute__((vector_size(4 * SHORT), aligned(4), may_alias));
EDGE(columns_at_the_edge, short_vector)
#endif

static void tile_at_the_edge(size_t rows, size_t columns, const ap_f32 *a, size_t a_segment, size_t a_row,
                             size_t a_column, size_t segments, size_t length, const ap_f32 *b, size_t b_row,
                             ap_f32 *c, size_t c_row, int mode)
{
    size_t n = 0;
#if defined(__GNUC__) && !defined(AP_PLAIN) && (defined(__SSE__) || defined(__aarch64__))
    for (; n + SHORT <= columns; n += SHORT)
        columns_at_the_edge(rows, a, a_segment, a_row, a_column, segments, length, b + n, b_row, c + n, c_row, mode);
#endif
    for (; n < columns; n++)
        column_at_the_edge(rows, a, a_segment, a_row, a_column, segments, length, b + n, b_row, c + n, c_row, mode);
}

void ap_product(size_t rows, size_t columns, const ap_f32 *a, size_t a_segment, size_t a_row, size_t a_column,
                size_t segments, size_t length, const ap_f32 *b, size_t b_row, ap_f32 *c, size_t c_row, int mode)
{
    for (size_t n = 0; n < columns; n += TILE) {
        const size_t wide = columns - n < TILE ? columns - n : TILE;
        for (size_t m = 0; m < rows; m += ROWS) {
            const size_t high = rows - m < ROWS ? rows - m : ROWS;
            if (high == ROWS && wide == TILE)
                tile(a + m * a_row, a_segment, a_row, a_column, segments, length, b + n, b_row, c + m * c_row + n,
                     c_row, mode);
            else
                tile_at_the_edge(high, wide, a + m * a_row, a_segment, a_row, a_column, segments, length, b + n,
                                 b_row, c + m * c_row + n, c_row, mode);
        }
    }
}

ap_f32 ap_tree(const ap_f32 *lane)
{
    ap_f32 sum[8];
    for (size_t l = 0; l < 8; l++) sum[l] = lane[l] + lane[l + 8];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

static ap_f32 dot(const ap_f32 *a, const ap_f32 *b, size_t length)
{
    ap_f32 lane[LANES] = {0};
    size_t k = 0;
    for (; k + LANES <= length; k += LANES)
        for (size_t l = 0; l < LANES; l++) lane[l] += a[k + l] * b[k + l];
    for (size_t l = 0; k + l < length; l++) lane[l] += a[k + l] * b[k + l];
    return ap_tree(lane);
}

void ap_dots(size_t rows, size_t columns, const ap_f32 *a, size_t a_row, const ap_f32 *b, size_t b_row, size_t length,
             ap_f32 *c, size_t c_row, int mode)
{
    for (size_t n = 0; n < columns; n++)
        for (size_t m = 0; m < rows; m++) {
            const ap_f32 sum = dot(a + m * a_row, b + n * b_row, length);
            c[m * c_row + n] = mode == AP_ADD ? c[m * c_row + n] + sum : sum;
        }
}

void ap_add_rows(size_t rows, size_t columns, const ap_f32 *x, ap_f32 *sums)
{
    for (size_t r = 0; r < rows; r++, x += columns)
        for (size_t c = 0; c < columns; c++) sums[c] += x[c];
}

ap_f32 ap_sum(const ap_f32 *x, size_t count)
{
    ap_f32 lane[LANES] = {0};
    size_t k = 0;
    for (; k + LANES <= count; k += LANES)
        for (size_t l = 0; l < LANES; l++) lane[l] += x[k + l];
    for (size_t l = 0; k + l < count; l++) lane[l] += x[k + l];
    return ap_tree(lane);
}

void ap_copy(void *to, const void *from, size_t bytes)
{
    unsigned char *t = (unsigned char *)to;
    const unsigned char *f = (const unsigned char *)from;
    if (t == f) return;
    if ((uintptr_t)t < (uintptr_t)f)
        for (size_t i = 0; i < bytes; i++) t[i] = f[i];
    else
        for (size_t i = bytes; i-- > 0;) t[i] = f[i];
}

void ap_fill(ap_f32 *y, ap_f32 value, size_t count)
{
    for (size_t i = 0; i < count; i++) y[i] = value;
}
