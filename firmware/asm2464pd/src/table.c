#include "table.h"

const __code u8 *table;

u8 table_next(void)
{
    return *table++;
}
