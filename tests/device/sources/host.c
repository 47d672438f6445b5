/* A machine with an operating system: words on a terminal, data in files of the working directory. */
#include <stdio.h>
#include <stdlib.h>

#include "tell.h"

void tell(const char *text) { fputs(text, stdout); }

uint32_t stack_bytes(void) { return 0; }

static unsigned char *contents(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) abort();
    const size_t bytes = (size_t)ftell(file);
    unsigned char *data = malloc(bytes + 1u);
    rewind(file);
    if (!data || fread(data, 1, bytes, file) != bytes || fclose(file)) abort();
    return data;
}

const unsigned char *first_values(void)
{
    static unsigned char *data;
    if (!data) data = contents("first.bin");
    return data;
}

const unsigned char *batches(void)
{
    static unsigned char *data;
    if (!data) data = contents("batches.bin");
    return data;
}
