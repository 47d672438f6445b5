/* A board's data: read-only memory beside the program. */
#include "tell.h"

extern const unsigned char first_image[], batches_image[];

const unsigned char *first_values(void) { return first_image; }

const unsigned char *batches(void) { return batches_image; }
