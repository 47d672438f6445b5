/* Trains a network on its batches, and tells the bits: of each loss, and of all that stays.

   With EXPECTED the network tests itself against that hash, and tells the answer; without, it tells the hash. */
#include "batches.h"
#include "tell.h"

int main(void)
{
    place_memories();
#if defined(EXPECTED)
    tell_bits("test", (uint64_t)net_self_test(first_values() + NET_STATE_AT, EXPECTED), 1);
#else
    tell_bits("self", net_self_hash(first_values() + NET_STATE_AT), 16);
#endif
    tell_bits("load", (uint64_t)net_load(first_values(), NET_SAVED_BYTES), 1);
    for (size_t k = 0; k < BATCHES; k++) {
        feed(batches() + k * BATCH_BYTES);
        tell_float("loss", net_step());
    }
    tell_bits("stack", stack_bytes(), 8);
    tell_bits("state", net_hash(), 16);
    return 0;
}
