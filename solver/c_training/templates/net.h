/* Training of @name@ in one arena, without allocation and without a library.

   Order of calls: net_init, then for each iteration every net_feed_... and @run@. */
#ifndef NET_H
#define NET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The plan whose offsets these are */
#define NET_PLAN "@digest@"
/* Bytes of each memory */
@sizes@
@periods@/* What stays from one iteration to the next: @count@ values, one behind the other */
#define NET_STATE_BYTES @state@u
/* Numbers of iterations that are counted */
#define NET_COUNTERS @counters@u
/* A saved state: "NETSTATE", the version of this layout in the order of the machine's bytes, the plan, the numbers of
   iterations; from NET_STATE_AT on the values; CRC-32C of all that. The file net_weights.bin is one, of little-endian
   machines. */
#define NET_STATE_AT (76u + 4u * NET_COUNTERS)
#define NET_SAVED_BYTES (NET_STATE_AT + NET_STATE_BYTES + 4u)

enum {
    NET_OK = 0,
    NET_NO_SUCH_NAME = 1,      /* net_read, net_write: no value that stays has this name */
    NET_OTHER_SIZE = 2,        /* the value, or the saved state, has another number of bytes */
    NET_OTHER_PLAN = 3,        /* net_load: the state is of another plan */
    NET_NOT_STARTED = 4,       /* neither net_init nor net_load was called */
    NET_OTHER_BITS = 5,        /* net_self_test: this compiler contracts or reorders arithmetic */
    NET_NO_STATE = 6,          /* net_load: the bytes are not a saved state of this version */
    NET_OTHER_BYTE_ORDER = 7,  /* net_load: the state is of a machine with another order of bytes */
    NET_NO_SUCH_SIZE = 8,      /* net_set_...: the plan does not serve this size */
    NET_OUT_OF_RANGE = 9,      /* net_feed_...: an index or a class label is out of range; nothing was fed */
    NET_DAMAGED = 10           /* net_load: bytes of the state have changed since it was saved */
};
@paging@@sizes_served@
@weights@/* Begin anew. `state` has NET_STATE_BYTES of first values. With 0, values begin as the list of names below says: most
   as zeros, so write the weights with net_write. Constants of the network are part of the code. Returns NET_OK. */
int net_init(const void *state);

@runs@
/* Weights, running statistics and optimizer variables by the names that the plan has for them. Behind net_init(0) they
   are 0, or the number behind their shape: scales of normalisations and running variances are 1, and what the network
   begins as one number is that number.

@names@ */
int net_read(const char *name, void *to, size_t bytes);
int net_write(const char *name, const void *from, size_t bytes);

/* Everything that the next iteration depends on, in NET_SAVED_BYTES: training goes on bit for bit where it was saved.
   net_load reads the whole state before it writes, which may lie in flash and needs no other memory. What it refuses
   changes nothing: a state of another plan, of a program of version 1 (without a check sum), or with a changed bit. */
int net_save(void *to, size_t bytes);
int net_load(const void *from, size_t bytes);

/* Runs everything once on fixed numbers from `state`, as net_init takes it, and compares the bits of results and of what
   stays with `expected`, which net_self_hash gave on a machine that is trusted. Call net_init afterwards. */
int net_self_test(const void *state, uint64_t expected);
uint64_t net_self_hash(const void *state);
/* FNV-1a of everything that stays */
uint64_t net_hash(void);

#ifdef __cplusplus
}
#endif
#endif
