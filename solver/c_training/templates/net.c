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
uint32_t iteration;
#else
@arenas@
static uint32_t iteration;
#endif
static int started;

/* The number of the update that the iteration belongs to, from 1 */
static uint32_t net_update(void) { return (iteration + NET_MICRO_BATCHES - 1u) / NET_MICRO_BATCHES; }

/* Marks bytes of a memory that hold nothing from here on. With NET_POISON they become NaN: a kernel that reads them
   all the same cannot go unnoticed. */
#ifdef NET_POISON
static void poison(unsigned char *at, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) at[i] = 0xffu;
}
#define NET_ENDS(at, bytes) poison(at, bytes)
#else
#define NET_ENDS(at, bytes) ((void)0)
#endif

_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "float and double must be IEEE 754's");

@tables@

/* What stays: its places in the memories, and where it is in a saved state. */
typedef struct {
    const char *name;
    int memory;
    uint32_t offset, bytes, saved;
    int is_first; /* others hold the same, for the start of the next iteration */
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
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

@clear@
@feeds@

@results@

@kind@ net_step(void)
{
    (void)net_update;
    if (!started) { @unstarted@ }
    iteration += 1u;
@steps@
    @leaves@
}

int net_init(const void *state)
{
    iteration = 0u;
    started = 1;
    for (size_t k = 0; k < PLACES; k++) {
        if (state)
            put(&places[k], (const unsigned char *)state + places[k].saved);
        else
            clear(&places[k]);
    }
    return NET_OK;
}

uint32_t net_iteration(void) { return iteration; }

int net_read(const char *name, void *to, size_t bytes)
{
    if (!started) return NET_NOT_STARTED;
    for (size_t k = 0; k < PLACES; k++)
        if (places[k].is_first && same(places[k].name, name)) {
            if (bytes != places[k].bytes) return NET_OTHER_SIZE;
            get(&places[k], to);
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
            put(&places[k], from);
            answer = NET_OK;
        }
    return answer;
}

/* "NETSTATE" with the number 1 in the order of this machine's bytes, the plan, and the iteration */
static const char magic[8] = {'N', 'E', 'T', 'S', 'T', 'A', 'T', 'E'};
static const uint32_t version = 1u;

void net_save(unsigned char *to)
{
    ap_copy(to, magic, 8u);
    ap_copy(to + 8, &version, 4u);
    ap_copy(to + 12, NET_PLAN, 64u);
    ap_copy(to + 76, &iteration, 4u);
    for (size_t k = 0; k < PLACES; k++)
        if (places[k].is_first) get(&places[k], to + 80 + places[k].saved);
}

int net_load(const unsigned char *from, size_t bytes)
{
    static const char plan[] = NET_PLAN;
    if (bytes != NET_SAVED_BYTES) return NET_OTHER_SIZE;
    for (size_t k = 0; k < 8u; k++)
        if (from[k] != (unsigned char)magic[k]) return NET_OTHER_PLAN;
    for (size_t k = 0; k < 4u; k++)
        if (from[8 + k] != ((const unsigned char *)&version)[k]) return NET_OTHER_PLAN;
    for (size_t k = 0; k < 64u; k++)
        if (from[12 + k] != (unsigned char)plan[k]) return NET_OTHER_PLAN;
    net_init(from + 80);
    ap_copy(&iteration, from + 76, 4u);
    return NET_OK;
}

static unsigned char piece[256];

uint64_t net_hash(void)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t k = 0; k < PLACES; k++) {
        if (!places[k].is_first) continue;
        place part = places[k];
        for (uint32_t at = 0; at < places[k].bytes; at += (uint32_t)sizeof piece) {
            part.offset = places[k].offset + at;
            part.bytes = places[k].bytes - at < sizeof piece ? places[k].bytes - at : (uint32_t)sizeof piece;
            get(&part, piece);
            for (uint32_t i = 0; i < part.bytes; i++) hash = (hash ^ piece[i]) * UINT64_C(1099511628211);
        }
    }
    return hash;
}

/* Numbers in [0, 1), the same everywhere; zeros for what is no float */
static void fill(void *to, uint32_t bytes, int floats)
{
    static uint32_t seed;
    seed = bytes;
    if (!floats) {
        for (uint32_t i = 0; i < bytes; i++) ((unsigned char *)to)[i] = 0u;
        return;
    }
    for (uint32_t i = 0; i < bytes / 4u; i++) {
        seed = seed * 1664525u + 1013904223u;
        ((ap_f32 *)to)[i] = (ap_f32)(seed >> 8) * (1.0f / 16777216.0f);
    }
}

uint64_t net_self_hash(const void *state)
{
    net_init(state);
@fills@
    (void)net_step();
    return net_hash();
}

int net_self_test(const void *state, uint64_t expected)
{
    return net_self_hash(state) == expected ? NET_OK : NET_OTHER_BITS;
}
