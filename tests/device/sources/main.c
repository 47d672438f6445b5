/* Trains a network on batches that lie beside it, and tells the bits: of each loss, and of all that stays.

   With EXPECTED the network tests itself against that hash, and tells the answer; without, it tells the hash. */
#include "batches.h"
#include "tell.h"

static void tell_bits(const char *name, uint64_t bits, int digits)
{
    char text[17];
    for (int k = 0; k < digits; k++) text[k] = "0123456789abcdef"[(bits >> (4 * (digits - 1 - k))) & 15u];
    text[digits] = 0;
    tell(name);
    tell(" ");
    tell(text);
    tell("\n");
}

int main(void)
{
#if defined(EXPECTED)
    tell_bits("test", (uint64_t)net_self_test(first_values + NET_STATE_AT, EXPECTED), 1);
#else
    tell_bits("self", net_self_hash(first_values + NET_STATE_AT), 16);
#endif
    tell_bits("load", (uint64_t)net_load(first_values, NET_SAVED_BYTES), 1);
    for (size_t k = 0; k < BATCHES; k++) {
        union { float value; uint32_t bits; } loss;
        feed(batches + k * BATCH_BYTES);
        loss.value = net_step();
        tell_bits("loss", loss.bits, 8);
    }
    tell_bits("state", net_hash(), 16);
    return 0;
}
