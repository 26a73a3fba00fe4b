#include "fetch.h"

#include "block.h"
#include "tlp.h"

u8 fetch_cause;

/* block_read ends with a request in flight. It has advanced the address too, unless it has read all it should.
 * While a completion may be that of an older request, block_read is not used. */
u16 fetch(u16 dwords)
{
    u8 rest, advanced;

    while (dwords) {
        tlp_launch();
        rest = (u8)(dwords - 1);
        advanced = 0;
        if (!tlp_guarded)
            advanced = rest = block_read(rest);
        fetch_cause = tlp_wait();
        if (fetch_cause != RESULT_TRAILER_CAUSE_DONE)
            return rest + 1;
        block_store();
        if (!advanced && block_step)
            tlp_next_dword();
        dwords = rest;
    }
    return 0;
}
