/* Trains a network from the saved state in a file on, or from its first values where there is none; saves after each
   step. `killed STATE K` kills its own process in step K, before that step is saved. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "batches.h"
#include "tell.h"

static unsigned char state[NET_SAVED_BYTES + 1u];

static void save(const char *path)
{
    static char beside[4096];
    snprintf(beside, sizeof beside, "%s.new", path);
    if (net_save(state, NET_SAVED_BYTES) != NET_OK) abort();
    FILE *file = fopen(beside, "wb");
    if (!file || fwrite(state, 1, NET_SAVED_BYTES, file) != NET_SAVED_BYTES || fclose(file) || rename(beside, path))
        abort();
}

int main(int count, char **arguments)
{
    if (count != 3) return 2;
    const char *path = arguments[1];
    const uint32_t last = (uint32_t)strtoul(arguments[2], 0, 10);
    place_memories();
#if defined(EXPECTED)
    tell_bits("test", (uint64_t)net_self_test(first_values() + NET_STATE_AT, EXPECTED), 1);
#else
    tell_bits("self", net_self_hash(first_values() + NET_STATE_AT), 16);
#endif
    FILE *file = fopen(path, "rb");
    const size_t bytes = file ? fread(state, 1, sizeof state, file) : NET_SAVED_BYTES;
    if (net_load(file ? state : first_values(), bytes) != NET_OK) abort();
    if (file) fclose(file);
    tell_bits("begins", net_iteration(), 8);
    for (uint32_t k = net_iteration(); k < BATCHES; k++) {
        feed(batches() + k * BATCH_BYTES);
        tell_float("loss", net_step());
        if (k == last) {
            fflush(stdout);
            raise(SIGKILL);
        }
        save(path);
    }
    tell_bits("state", net_hash(), 16);
    return 0;
}
