/* Trains the network of `batches.h` on its first batch: what training_process.py does, for the files of an export.

   Arguments: the files of first values and of batches. Each line of standard input is answered by one step. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "batches.h"

static unsigned char *contents(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) exit(2);
    const size_t bytes = (size_t)ftell(file);
    unsigned char *data = malloc(bytes);
    rewind(file);
    if (!data || fread(data, 1, bytes, file) != bytes) exit(2);
    fclose(file);
    return data;
}

/* Bytes that a line of /proc/self/status tells */
static long status(const char *key)
{
    char line[256];
    long kibibytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (!file) exit(2);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key))) kibibytes = strtol(line + strlen(key) + 1, 0, 10);
    fclose(file);
    return 1024 * kibibytes;
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int count, char **arguments)
{
    char line[64];
    if (count != 3) return 2;
    unsigned char *batch = contents(arguments[2]);
    printf("{\"runs\": \"C\"}\n");
    fflush(stdout);
    const long before = status("VmRSS");
    unsigned char *first = contents(arguments[1]);
    if (net_load(first, NET_SAVED_BYTES) != NET_OK) return 3;
    free(first);
    while (fgets(line, sizeof line, stdin)) {
        const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
        feed(batch);
        const double loss = (double)net_step();
        const double took = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, passed = seconds(CLOCK_MONOTONIC) - wall;
        const long peak = status("VmHWM");
        printf("{\"loss\": %.9g, \"cpu\": %.9f, \"wall\": %.9f, \"peak\": %ld, \"above\": %ld}\n", loss, took, passed,
               peak, peak - before);
        fflush(stdout);
    }
    return 0;
}
