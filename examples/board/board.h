/* What start-up code gives a program. */
#include <stdint.h>

void tell(const char *text); /* shows it where the debugger runs: semihosting */
uint32_t stack_bytes(void);  /* the deepest that the stack has been */
