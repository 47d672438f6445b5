/* Operators of two or three operands that repeat along axes, beside those of arithmetic. */
#ifndef AP_BROADCAST_H
#define AP_BROADCAST_H
#include "ap.h"

typedef struct {
    size_t extent[6];                       /* of the result */
    size_t step_a[6], step_b[6], step_c[6]; /* elements from one index of the result to the next; 0 where one repeats */
} ap_operands;

void ap_where_forward(const ap_operands *s, const uint8_t *a, const ap_f32 *b, const ap_f32 *c, ap_f32 *y);
/* db or dc may be 0. They have count_b and count_c elements; what repeats is summed in the order of dy. */
void ap_where_backward(const ap_operands *s, const uint8_t *a, const ap_f32 *dy, ap_f32 *db, size_t count_b, ap_f32 *dc,
                       size_t count_c);

enum { AP_EQUAL, AP_GREATER, AP_GREATER_OR_EQUAL, AP_LESS, AP_LESS_OR_EQUAL, AP_AND, AP_OR };
void ap_compare(int kind, const ap_operands *s, const ap_f32 *a, const ap_f32 *b, uint8_t *y);
void ap_compare_int32(int kind, const ap_operands *s, const int32_t *a, const int32_t *b, uint8_t *y);
void ap_compare_int64(int kind, const ap_operands *s, const int64_t *a, const int64_t *b, uint8_t *y);
void ap_compare_uint8(int kind, const ap_operands *s, const uint8_t *a, const uint8_t *b, uint8_t *y);
void ap_not(size_t count, const uint8_t *x, uint8_t *y);
void ap_is_nan(size_t count, const ap_f32 *x, uint8_t *y);

/* x where it is positive, else x times its slope */
void ap_prelu_forward(const ap_operands *s, const ap_f32 *x, const ap_f32 *slope, ap_f32 *y);
/* dx or dslope may be 0; dslope has `count` elements */
void ap_prelu_backward(const ap_operands *s, const ap_f32 *x, const ap_f32 *slope, const ap_f32 *dy, ap_f32 *dx,
                       ap_f32 *dslope, size_t count);

ap_f32 ap_pow(ap_f32 x, ap_f32 y); /* at most 1 unit in the last place from x to the power of y */
/* The exponents b are floats, or integers of `bytes` each; da or db may be 0, and have count_a and count_b elements. */
void ap_pow_forward(const ap_operands *s, const ap_f32 *a, const void *b, size_t bytes, ap_f32 *y);
void ap_pow_backward(const ap_operands *s, const ap_f32 *a, const void *b, size_t bytes, const ap_f32 *y,
                     const ap_f32 *dy, ap_f32 *da, size_t count_a, ap_f32 *db, size_t count_b);
#endif
