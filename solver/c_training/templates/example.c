/* Trains on zeros: put your data in their place. */
#include <stdio.h>

#include "net.h"

@arrays@

int main(void)
{
@begin@
    for (int i = 0; i < 10; i++) {
@calls@
    }
    return 0;
}
