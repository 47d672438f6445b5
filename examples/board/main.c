/* Trains a network on digits that this file draws: `image` has 28 x 28 floats, `label` is a number of 64 bits.

   A plan of any batch will do, and loss below ten. The board and the computer at hand print the same lines, for the bits are the same. */
#include "board.h"
#include "net.h"

#if __STDC_HOSTED__
#include <stdio.h>
void tell(const char *text) { fputs(text, stdout); }
#endif

enum { SIDE = 28, PIXELS = SIDE * SIDE, SCALE = 3, STEPS = 200, SHOWN = 20 };

static float images[NET_ELEMENTS_image];
static int64_t labels[NET_ELEMENTS_label];

/* Seven rows of five dots for each digit */
static const unsigned char dots[10][7] = {
    {14, 17, 19, 21, 25, 17, 14}, {4, 12, 4, 4, 4, 4, 14},     {14, 17, 1, 2, 4, 8, 31}, {31, 2, 4, 2, 1, 17, 14},
    {2, 6, 10, 18, 31, 2, 2},     {31, 16, 30, 1, 1, 17, 14},  {6, 8, 16, 30, 17, 17, 14}, {31, 1, 2, 4, 8, 8, 8},
    {14, 17, 17, 14, 17, 17, 14}, {14, 17, 17, 15, 1, 2, 12},
};

static uint32_t random_below(uint32_t limit)
{
    static uint32_t seed = 1u;
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 16) % limit;
}

/* A digit somewhere in the image, on a noisy ground */
static void draw(float *image, size_t digit)
{
    const uint32_t top = random_below(SIDE - 7 * SCALE), left = random_below(SIDE - 5 * SCALE);
    for (size_t k = 0; k < PIXELS; k++) image[k] = (float)random_below(256u) * (1.0f / 1024.0f);
    for (uint32_t y = 0; y < 7 * SCALE; y++)
        for (uint32_t x = 0; x < 5 * SCALE; x++)
            if (dots[digit][y / SCALE] >> (4 - x / SCALE) & 1) image[(top + y) * SIDE + left + x] = 1.0f;
}

static void tell_number(const char *before, uint32_t number, int digits, const char *after)
{
    char text[12];
    text[digits] = 0;
    for (; digits-- > 0; number /= 10u) text[digits] = (char)('0' + number % 10u);
    tell(before);
    tell(text);
    tell(after);
}

int main(void)
{
    float sum = 0.0f;
    net_init(net_weights);
    for (uint32_t step = 1; step <= STEPS; step++) {
        for (size_t k = 0; k < NET_ELEMENTS_label; k++) {
            labels[k] = (int64_t)random_below(10u);
            draw(images + k * PIXELS, (size_t)labels[k]);
        }
        net_feed_image(images);
        net_feed_label(labels);
        sum += net_step();
        if (step % SHOWN == 0) {
            const uint32_t thousandths = (uint32_t)(sum * (1000.0f / SHOWN));
            tell_number("steps to ", step, 3, ": mean loss ");
            tell_number("", thousandths / 1000u, 1, ".");
            tell_number("", thousandths % 1000u, 3, "\n");
            sum = 0.0f;
        }
    }
    tell_number("bits of all weights, as a number: ", (uint32_t)net_hash(), 10, "\n");
    return 0;
}
