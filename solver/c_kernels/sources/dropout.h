/* Dropout, whose mask is a function of seed, operation, iteration and element. */
#ifndef AP_DROPOUT_H
#define AP_DROPOUT_H
#include "ap.h"

/* y = x factor, or 0 where the element's 32 bits are below `threshold`; y may be x. Backward is the same of dy. `key`
   belongs to the seed and the operation; two elements share one word of SplitMix64 (Steele, Lea and Flood, 2014). */
void ap_dropout(size_t count, uint64_t key, uint32_t iteration, uint32_t threshold, ap_f32 factor, const ap_f32 *x,
                ap_f32 *y);
#endif
