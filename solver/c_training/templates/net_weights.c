#include "net.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "These bytes are for little-endian machines: export with --weights none, and write the values with net_write."
#endif

const unsigned char net_weights[@size@] = {
    @values@
};
