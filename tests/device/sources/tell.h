/* How a program tells what it computed: on a terminal, or through a debugger. */
void tell(const char *text);
