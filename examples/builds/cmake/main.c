/* The arena of a plan in a program of its own: where everything lies is known when it is compiled. */
#define DIGITS_IMPLEMENTATION
#define DIGITS_NAMES
#include "mnist.plan.h"

#include <stdio.h>

int main(void) {
    float *weights = (float *)(void *)(digits_space_arena + DIGITS_OFFSET_CONV1_WEIGHT);
    for (unsigned i = 0; i < DIGITS_BYTES_CONV1_WEIGHT / sizeof *weights; i++) {
        weights[i] = 0.0f; /* yours go here */
    }
    printf("%lu bytes, %u steps\n", (unsigned long)sizeof digits_space_arena, (unsigned)DIGITS_STEPS);
    for (unsigned t = 0; t < DIGITS_STEPS; t++) {
        const digits_planned_step *step = &digits_steps[t];
        if (step->flags & DIGITS_STEP_IS_DONE) {
            continue; /* a view: nothing to do */
        }
        printf("%s", digits_step_names[t]);
        for (unsigned k = 0; k < step->bindings; k++) {
            const digits_planned_binding *binding = &digits_bindings[step->first_binding + k];
            const digits_planned_value *value = &digits_values[binding->value];
            printf(" %s=%lu", digits_slot_names[binding->slot], (unsigned long)value->offset);
        }
        printf("\n"); /* your kernels are called here */
    }
    return 0;
}
