/* Element by element: y may be x, dx may be dy. */
#ifndef AP_ELEMENTWISE_H
#define AP_ELEMENTWISE_H
#include "ap.h"

void ap_accumulate(ap_f32 *total, const ap_f32 *partial, size_t count);

enum { AP_ADDITION, AP_SUBTRACTION, AP_MULTIPLICATION, AP_DIVISION };
typedef struct {
    size_t extent[6]; /* of the result, axes of extent 1 in front */
    size_t step_a[6]; /* elements from one index to the next; 0 where the operand repeats */
    size_t step_b[6];
} ap_pairs;
void ap_pair_forward(int kind, const ap_pairs *p, const ap_f32 *a, const ap_f32 *b, ap_f32 *y);
/* da and db have the shapes of a and b, either may be 0; sums go in the order of the result's elements. `work` has
   the size of dy where an activation is undone, else it is 0. */
void ap_pair_backward(int kind, int activation, const ap_pairs *p, const ap_f32 *a, const ap_f32 *b, const ap_f32 *y,
                      const ap_f32 *dy, ap_f32 *da, size_t count_a, ap_f32 *db, size_t count_b, ap_f32 *work);
#endif
