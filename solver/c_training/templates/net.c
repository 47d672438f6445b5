#include "net.h"

#include "kernels/ap.h"

#if defined(__GNUC__)
#define NET_ALIGNED __attribute__((aligned(64)))
#else
#define NET_ALIGNED _Alignas(64)
#endif
@places@

#ifdef NET_HOSTED /* another program brings the memories, all of them, and counts the iterations */
@hosted@
uint32_t iterations[NET_COUNTERS], outside;
int started;
#define NET_OUTSIDE(step) (outside = (step)) /* the step, from 1, that read an index out of range */
#else
@arenas@
static uint32_t iterations[NET_COUNTERS];
static int started;
#define NET_OUTSIDE(step) ((void)0)
#endif
@size@
/* Marks bytes of a memory that hold nothing from here on. With NET_POISON they become NaN, and net_init begins with
   memories of NaN: a kernel that reads them all the same cannot go unnoticed. */
#ifdef NET_POISON
static void poison(unsigned char *at, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) at[i] = 0xffu;
}
#define NET_ENDS(at, bytes) poison(at, bytes)
#else
#define NET_ENDS(at, bytes) ((void)0)
#endif

#ifdef __cplusplus
#define NET_ASSERT static_assert
#else
#define NET_ASSERT _Static_assert
#endif
NET_ASSERT(FLT_RADIX == 2 && FLT_MANT_DIG == 24 && FLT_MAX_EXP == 128 && sizeof(float) == 4,
           "float must be IEEE 754's of 32 bits");
NET_ASSERT(DBL_MANT_DIG == 53 && DBL_MAX_EXP == 1024 && sizeof(double) == 8,
           "double must be IEEE 754's of 64 bits: leave out -fshort-double and the like");
NET_ASSERT(SIZE_MAX >= 0xffffffffu, "a size must have 32 bits");
NET_ASSERT(FLT_EVAL_METHOD == 0, "float must be evaluated as float: on x86 compile with -msse2 -mfpmath=sse");
NET_ASSERT(64 % sizeof(double) == 0 && 64 % sizeof(int64_t) == 0, "arenas must be aligned for every element");
@tables@

@constants@
/* What stays: its places in the memories, where it is in a saved state, and eight bytes of what it begins as. */
typedef struct {
    const char *name;
    int memory;
    uint32_t offset, bytes, saved;
    int is_first; /* others hold the same, for the start of the next iteration */
    uint64_t start;
} place;

static const place places[] = {
@rows@
};
enum { PLACES = sizeof places / sizeof *places };

static void get(const place *p, unsigned char *to)
{
@get@
}

static void put(const place *p, const unsigned char *from)
{
@put@
}

static int same(const char *a, const char *b)
{
    for (; *a && *a == *b; a++) b++;
    return *a == *b;
}

@clear@
@ranges@@feeds@

@results@

@runs@

int net_init(const void *state)
{
    for (size_t k = 0; k < NET_COUNTERS; k++) iterations[k] = 0u;
@largest@    started = 1;
@begins@
    put_constants();
    for (size_t k = 0; k < PLACES; k++) {
        if (state)
            put(&places[k], (const unsigned char *)state + places[k].saved);
        else
            clear(&places[k]);
    }
    return NET_OK;
}

@counts@

int net_read(const char *name, void *to, size_t bytes)
{
    if (!started) return NET_NOT_STARTED;
    for (size_t k = 0; k < PLACES; k++)
        if (places[k].is_first && same(places[k].name, name)) {
            if (bytes != places[k].bytes) return NET_OTHER_SIZE;
            get(&places[k], (unsigned char *)to);
            return NET_OK;
        }
    return NET_NO_SUCH_NAME;
}

int net_write(const char *name, const void *from, size_t bytes)
{
    int answer = started ? NET_NO_SUCH_NAME : NET_NOT_STARTED;
    for (size_t k = 0; started && k < PLACES; k++)
        if (same(places[k].name, name)) {
            if (bytes != places[k].bytes) return NET_OTHER_SIZE;
            put(&places[k], (const unsigned char *)from);
            answer = NET_OK;
        }
    return answer;
}

static const unsigned char magic[8] = {'N', 'E', 'T', 'S', 'T', 'A', 'T', 'E'};
static const uint32_t version = 2u;

/* CRC-32C (Castagnoli), bit by bit: without a table */
static uint32_t check_sum(const unsigned char *from, size_t bytes)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= from[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    return ~crc;
}

int net_save(void *to, size_t bytes)
{
    unsigned char *state = (unsigned char *)to;
    if (!started) return NET_NOT_STARTED;
    if (bytes != NET_SAVED_BYTES) return NET_OTHER_SIZE;
    ap_copy(state, magic, 8u);
    ap_copy(state + 8, &version, 4u);
    ap_copy(state + 12, NET_PLAN, 64u);
    ap_copy(state + 76, iterations, sizeof iterations);
    for (size_t k = 0; k < PLACES; k++)
        if (places[k].is_first) get(&places[k], state + NET_STATE_AT + places[k].saved);
    const uint32_t sum = check_sum(state, NET_SAVED_BYTES - 4u);
    ap_copy(state + NET_SAVED_BYTES - 4u, &sum, 4u);
    return NET_OK;
}

static int equal(const unsigned char *state, const void *expected, size_t bytes)
{
    const unsigned char *e = (const unsigned char *)expected;
    for (size_t k = 0; k < bytes; k++)
        if (state[k] != e[k]) return 0;
    return 1;
}

int net_load(const void *from, size_t bytes)
{
    const unsigned char *state = (const unsigned char *)from;
    uint32_t swapped = version << 24;
    if (bytes < NET_STATE_AT) return NET_OTHER_SIZE;
    if (!equal(state, magic, 8u)) return NET_NO_STATE;
    if (equal(state + 8, &swapped, 4u)) return NET_OTHER_BYTE_ORDER;
    if (!equal(state + 8, &version, 4u)) return NET_NO_STATE;
    if (!equal(state + 12, NET_PLAN, 64u)) return NET_OTHER_PLAN;
    if (bytes != NET_SAVED_BYTES) return NET_OTHER_SIZE;
    const uint32_t sum = check_sum(state, NET_SAVED_BYTES - 4u);
    if (!equal(state + NET_SAVED_BYTES - 4u, &sum, 4u)) return NET_DAMAGED;
    net_init(state + NET_STATE_AT);
    ap_copy(iterations, state + 76, sizeof iterations);
    return NET_OK;
}

static const uint64_t basis = UINT64_C(14695981039346656037);

static uint64_t hashed(uint64_t hash, const void *from, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)from)[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t hashed_state(uint64_t hash)
{
    unsigned char piece[64];
    for (size_t k = 0; k < PLACES; k++) {
        if (!places[k].is_first) continue;
        place part = places[k];
        for (uint32_t at = 0; at < places[k].bytes; at += (uint32_t)sizeof piece) {
            part.offset = places[k].offset + at;
            part.bytes = places[k].bytes - at < sizeof piece ? places[k].bytes - at : (uint32_t)sizeof piece;
            get(&part, piece);
            hash = hashed(hash, piece, part.bytes);
        }
    }
    return hash;
}

uint64_t net_hash(void) { return hashed_state(basis); }

/* Numbers in [0, 1), the same everywhere; zeros for what is no float */
static void fill(int memory, uint32_t offset, uint32_t bytes, int floats)
{
    unsigned char piece[64];
    place part = {"", memory, offset, 0u, 0u, 0, 0u};
    uint32_t seed = bytes;
    for (uint32_t at = 0; at < bytes; at += (uint32_t)sizeof piece) {
        for (uint32_t i = 0; i < (uint32_t)sizeof piece; i += 4u) {
            seed = seed * 1664525u + 1013904223u;
            const ap_f32 number = floats ? (ap_f32)(seed >> 8) * (1.0f / 16777216.0f) : 0.0f;
            ap_copy(piece + i, &number, 4u);
        }
        part.offset = offset + at;
        part.bytes = bytes - at < sizeof piece ? bytes - at : (uint32_t)sizeof piece;
        put(&part, piece);
    }
}

uint64_t net_self_hash(const void *state)
{
    uint64_t hash = basis;
    net_init(state);
@tests@
    return hashed_state(hash);
}

int net_self_test(const void *state, uint64_t expected)
{
    return net_self_hash(state) == expected ? NET_OK : NET_OTHER_BITS;
}
