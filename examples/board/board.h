/* What start-up code gives a program. */
void tell(const char *text); /* shows it where the debugger runs: semihosting */
