/* A Cortex-M without an operating system: from reset to main, and words through the debugger (semihosting). */
#include <stddef.h>
#include <stdint.h>

#include "board.h"

extern uint32_t stack_top[], data_from[], data_start[], data_end[], bss_start[], bss_end[];
int main(void);
void reset(void);

enum { SEMIHOSTING_WRITE = 4, SEMIHOSTING_EXIT = 0x18, STOPPED = 0x20026 };

static void ask(uint32_t what, uintptr_t with)
{
    register uint32_t r0 __asm__("r0") = what;
    register uintptr_t r1 __asm__("r1") = with;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

void tell(const char *text) { ask(SEMIHOSTING_WRITE, (uintptr_t)text); }

/* Memory between variables and stack is filled with this word before main, and the stack overwrites it. */
enum { UNUSED = 0x5afe57ac };

uint32_t stack_bytes(void)
{
    const uint32_t *word = bss_end;
    while (word < stack_top && *word == UNUSED) word++;
    return (uint32_t)(stack_top - word) * 4u;
}

static void leave(void)
{
    for (;;) ask(SEMIHOSTING_EXIT, STOPPED);
}

static void fault(void)
{
    tell("fault\n");
    leave();
}

/* The compiler may call these four of the C library, whatever it is told. */
void *memset(void *to, int value, size_t count)
{
    volatile uint8_t *t = to;
    while (count--) *t++ = (uint8_t)value;
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t count)
{
    volatile uint8_t *t = to;
    const uint8_t *f = from;
    while (count--) *t++ = *f++;
    return to;
}

void *memmove(void *to, const void *from, size_t count)
{
    if ((uintptr_t)to <= (uintptr_t)from) return memcpy(to, from, count);
    while (count--) ((volatile uint8_t *)to)[count] = ((const uint8_t *)from)[count];
    return to;
}

int memcmp(const void *a, const void *b, size_t count)
{
    const volatile uint8_t *p = a, *q = b;
    for (; count--; p++, q++)
        if (*p != *q) return *p - *q;
    return 0;
}

void reset(void)
{
#if defined(__ARM_FP)
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* the floating-point unit may be used */
    __asm__ volatile("dsb\nisb");
#endif
    for (uint32_t *to = data_start, *from = data_from; to < data_end;) *to++ = *from++;
    for (uint32_t *to = bss_start; to < bss_end;) *to++ = 0u;
    volatile uint32_t here = 0u;
    for (uint32_t *to = bss_end; to < (uint32_t *)((uintptr_t)&here - 128u);) *to++ = UNUSED;
    main();
    leave();
}

__attribute__((section(".vectors"), used)) static const uintptr_t vectors[16] = {
    (uintptr_t)stack_top, (uintptr_t)reset, (uintptr_t)fault, (uintptr_t)fault,
    (uintptr_t)fault,     (uintptr_t)fault, (uintptr_t)fault,
};
