/* Products and sums. Tiles and vector lanes hold different elements of the result, so their number never shows. */
#include "ap.h"

/* ------------------------------------------------------------------ products in tiles, which stay in registers */

#if defined(__GNUC__) && (defined(__SSE2__) || defined(__aarch64__))
#define UNROLLED _Pragma("GCC unroll 16")
#if defined(__clang__)
#define AS_VECTOR
#else
#define AS_VECTOR _Pragma("GCC unroll 1") /* gcc makes vectors of loops that it has not unrolled before */
#endif

/* A tile is a part of the result that stays in registers: ROWS rows of COLUMNS elements of TYPE, which is a float or a
   vector of FLOATS. LEFT is the factor of a. */
#define TILE(NAME, ROWS, TYPE, COLUMNS, LEFT)                                                                          \
    static void NAME(const ap_terms *t, const ap_f32 *a, size_t a_row, const ap_f32 *b, ap_f32 *c, size_t c_row,       \
                     int mode)                                                                                         \
    {                                                                                                                  \
        typedef TYPE element;                                                                                          \
        enum { FLOATS = sizeof(TYPE) / sizeof(ap_f32) };                                                               \
        element sum[ROWS][COLUMNS];                                                                                    \
        UNROLLED for (size_t m = 0; m < ROWS; m++)                                                                     \
            ALONG_ROW for (size_t n = 0; n < COLUMNS; n++) sum[m][n] = (element){0};                                   \
        if (mode == AP_CHAIN) {                                                                                        \
            UNROLLED for (size_t m = 0; m < ROWS; m++)                                                                 \
                ALONG_ROW for (size_t n = 0; n < COLUMNS; n++) sum[m][n] = *(const element *)(c + m * c_row + n * FLOATS); \
        }                                                                                                              \
        for (size_t s = 0; s < t->segments; s++, a += t->a_segment, b += t->b_segment) {                               \
            const ap_f32 *p = a, *q = b;                                                                               \
            for (size_t k = t->length; k > 0; k--, p += t->a_step, q += t->b_step) {                                   \
                UNROLLED for (size_t m = 0; m < ROWS; m++)                                                             \
                    ALONG_ROW for (size_t n = 0; n < COLUMNS; n++) sum[m][n] += LEFT * *(const element *)(q + n * FLOATS); \
            }                                                                                                          \
        }                                                                                                              \
        if (mode == AP_ADD) {                                                                                          \
            UNROLLED for (size_t m = 0; m < ROWS; m++)                                                                 \
                ALONG_ROW for (size_t n = 0; n < COLUMNS; n++) sum[m][n] += *(const element *)(c + m * c_row + n * FLOATS); \
        }                                                                                                              \
        UNROLLED for (size_t m = 0; m < ROWS; m++)                                                                     \
            ALONG_ROW for (size_t n = 0; n < COLUMNS; n++) *(element *)(c + m * c_row + n * FLOATS) = sum[m][n];       \
    }
#define FLOAT_OF_A p[m * a_row]
#define ROW_OF_A *(const element *)(p + m * a_row + n * FLOATS)

typedef void tile(const ap_terms *t, const ap_f32 *a, size_t a_row, const ap_f32 *b, ap_f32 *c, size_t c_row, int mode);

#if !defined(AP_PLAIN) /* tiles of vectors of GNU C */
#define ALONG_ROW UNROLLED
#if defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef ap_f32 vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef ap_f32 short_vector __attribute__((vector_size(16), aligned(4), may_alias));
#define WIDEST vector, 2
#define WIDE vector, 1
#define NARROW short_vector, 1
static const size_t widths[] = {2 * LANES, LANES, 4, 1};
#else /* tiles of arrays */
#define ALONG_ROW AS_VECTOR
#define WIDEST ap_f32, 16
#define WIDE ap_f32, 8
#define NARROW ap_f32, 4
static const size_t widths[] = {16, 8, 4, 1};
#endif
#define SINGLE ap_f32, 1
static const size_t heights[] = {6, 2, 1};
#define OF_EACH_HEIGHT(NAME, SHAPE, LEFT) TILE(NAME##6, 6, SHAPE, LEFT) TILE(NAME##2, 2, SHAPE, LEFT) TILE(NAME##1, 1, SHAPE, LEFT)
#define TILES(NAME, LEFT)                                                                                              \
    OF_EACH_HEIGHT(NAME##_widest, WIDEST, LEFT)                                                                        \
    OF_EACH_HEIGHT(NAME##_wide, WIDE, LEFT)                                                                            \
    OF_EACH_HEIGHT(NAME##_narrow, NARROW, LEFT)                                                                        \
    OF_EACH_HEIGHT(NAME##_single, SINGLE, LEFT)                                                                        \
    static tile *const NAME[4][3] = {{NAME##_widest6, NAME##_widest2, NAME##_widest1},                                 \
                                     {NAME##_wide6, NAME##_wide2, NAME##_wide1},                                       \
                                     {NAME##_narrow6, NAME##_narrow2, NAME##_narrow1},                                 \
                                     {NAME##_single6, NAME##_single2, NAME##_single1}};

TILES(product, FLOAT_OF_A)
TILES(by_column, ROW_OF_A)

/* Covers the result with tiles: blocks of rows that stay in the cache, then panels of columns */
void ap_products(size_t rows, size_t columns, const ap_terms *t, const ap_f32 *a, size_t a_row, const ap_f32 *b,
                 ap_f32 *c, size_t c_row, int mode)
{
    enum { BLOCK = 96 };
    for (size_t first = 0; first < rows; first += BLOCK) {
        const size_t end = rows - first < BLOCK ? rows : first + BLOCK;
        for (size_t n = 0, w = 0; n < columns; n += widths[w]) {
            while (columns - n < widths[w]) w++;
            for (size_t m = first, h = 0; m < end; m += heights[h]) {
                while (end - m < heights[h]) h++;
                (t->a_column ? by_column : product)[w][h](t, a + m * a_row + n * t->a_column, a_row, b + n,
                                                          c + m * c_row + n, c_row, mode);
            }
        }
    }
}
#else /* two by two floats, for processors without vectors: little code. At an edge the tile has an element twice. */
void ap_products(size_t rows, size_t columns, const ap_terms *t, const ap_f32 *a, size_t a_row, const ap_f32 *b,
                 ap_f32 *c, size_t c_row, int mode)
{
    for (size_t n = 0; n < columns; n += 2)
        for (size_t m = 0; m < rows; m += 2) {
            const size_t right = n + 1 < columns, a_right = right * t->a_column, down = m + 1 < rows ? a_row : 0;
            ap_f32 *c0 = c + m * c_row + n, *c1 = c0 + (m + 1 < rows ? c_row : 0);
            ap_f32 s00 = 0.0f, s01 = 0.0f, s10 = 0.0f, s11 = 0.0f;
            if (mode == AP_CHAIN) s00 = c0[0], s01 = c0[right], s10 = c1[0], s11 = c1[right];
            for (size_t s = 0; s < t->segments; s++) {
                const ap_f32 *p = a + m * a_row + n * t->a_column + s * t->a_segment, *q = b + n + s * t->b_segment;
                for (size_t k = t->length; k > 0; k--, p += t->a_step, q += t->b_step) {
                    s00 += p[0] * q[0], s01 += p[a_right] * q[right];
                    s10 += p[down] * q[0], s11 += p[down + a_right] * q[right];
                }
            }
            if (mode == AP_ADD) s00 += c0[0], s01 += c0[right], s10 += c1[0], s11 += c1[right];
            c0[0] = s00, c0[right] = s01, c1[0] = s10, c1[right] = s11;
        }
}
#endif

void ap_product(size_t rows, size_t columns, size_t length, const ap_f32 *a, size_t a_row, size_t a_step,
                const ap_f32 *b, size_t b_row, ap_f32 *c, size_t c_row, int mode)
{
    const ap_terms terms = {1, length, 0, a_step, 0, 0, b_row};
    ap_products(rows, columns, &terms, a, a_row, b, c, c_row, mode);
}

/* ------------------------------------------------------------------ sums in parts */

enum { PARTS = 16 };

/* The fixed tree over the parts of a sum */
ap_f32 ap_tree(const ap_f32 *part)
{
    ap_f32 sum[8];
    for (size_t l = 0; l < 8; l++) sum[l] = part[l] + part[l + 8];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

static ap_f32 dot(const ap_f32 *a, const ap_f32 *b, size_t length)
{
    ap_f32 part[PARTS] = {0};
    size_t k = 0;
    for (; k + PARTS <= length; k += PARTS)
        for (size_t l = 0; l < PARTS; l++) part[l] += a[k + l] * b[k + l];
    for (size_t l = 0; k + l < length; l++) part[l] += a[k + l] * b[k + l];
    return ap_tree(part);
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

void ap_add_to_rows(size_t rows, size_t columns, const ap_f32 *x, ap_f32 *y)
{
    for (size_t r = 0; r < rows; r++, y += columns)
        for (size_t c = 0; c < columns; c++) y[c] += x[c];
}

ap_f32 ap_sum(const ap_f32 *x, size_t count)
{
    ap_f32 part[PARTS] = {0};
    size_t k = 0;
    for (; k + PARTS <= count; k += PARTS)
        for (size_t l = 0; l < PARTS; l++) part[l] += x[k + l];
    for (size_t l = 0; k + l < count; l++) part[l] += x[k + l];
    return ap_tree(part);
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
