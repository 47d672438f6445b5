#include "ap.h"

#define GAMMA UINT64_C(0x9e3779b97f4a7c15)

static uint64_t mixed(uint64_t v)
{
    v = (v ^ v >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    v = (v ^ v >> 27) * UINT64_C(0x94d049bb133111eb);
    return v ^ v >> 31;
}

void ap_dropout(size_t count, uint64_t key, uint32_t iteration, uint32_t threshold, ap_f32 factor, const ap_f32 *x,
                ap_f32 *y)
{
    uint64_t counter = mixed(key + iteration * GAMMA);
    for (size_t i = 0; i < count; i += 2) {
        const uint64_t word = mixed(counter += GAMMA);
        y[i] = (uint32_t)word < threshold ? 0.0f : x[i] * factor;
        if (i + 1 < count) y[i + 1] = (uint32_t)(word >> 32) < threshold ? 0.0f : x[i + 1] * factor;
    }
}
