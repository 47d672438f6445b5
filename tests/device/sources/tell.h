/* How a program tells what it computed, and where its data are: on a terminal with files, or through a debugger with
   a board's read-only memory. */
#ifndef TELL_H
#define TELL_H

#include <stdint.h>

void tell(const char *text);
const unsigned char *first_values(void);
const unsigned char *batches(void);
uint32_t stack_bytes(void); /* the deepest that the stack has been; 0 where nobody watches it */

static inline void tell_bits(const char *name, uint64_t bits, int digits)
{
    char text[17];
    for (int k = 0; k < digits; k++) text[k] = "0123456789abcdef"[(bits >> (4 * (digits - 1 - k))) & 15u];
    text[digits] = 0;
    tell(name);
    tell(" ");
    tell(text);
    tell("\n");
}

static inline void tell_float(const char *name, float value)
{
    union { float value; uint32_t bits; } number = {.value = value};
    tell_bits(name, number.bits, 8);
}

#endif
