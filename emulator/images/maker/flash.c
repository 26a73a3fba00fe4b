#include "flash.h"

#include "timer.h"

enum { PROGRAM = 0x02, READ = 0x03, READ_STATUS = 0x05, WRITE_ENABLE = 0x06, ERASE_SECTOR = 0x20 };
enum { IDENTIFY = 0x9F };
enum { BUSY = 0x01, ENABLED = 0x02, PROTECTED = 0x1C }; /* of the flash's status */
enum { NO_ADDRESS = 0, WITH_ADDRESS = 3 };
enum { LEAST_SIZE = 16, LARGEST_SIZE = 24 }; /* exponents of 2 */
enum { DIVIDER = 4 };
enum { IDENTITY_AT = 0x74, SUM_FROM = 4, MAGIC_AT = 0x7E, SUM_AT = 0x7F, MAGIC = 0x5A };
#define READ_PIECE 0x400u  /* row 22 */
#define STATUS_AT 0xFF0u   /* where in IN_BUFFER the flash's status goes */
#define LONGEST 2000u      /* ticks that the flash may be busy */

__xdata u32 flash_size;
__xdata u8 flash_identity[IDENTITY_SIZE];
__xdata u8 flash_has_identity;

/* Of the next transaction. */
static __xdata u32 place;
static __xdata u16 buffer_offset;
static __xdata u16 data_length;
static __xdata u8 to_flash;

static __xdata u8 kept[FLASH_SECTOR];

/* -- transactions ---------------------------------------------------------------------------------------- */

/* Rows 20, 21: the gate CA81.0 is left alone, and the upper bits of the address length are kept. */
static void transact(u8 code, u8 address_bytes)
{
    FLASH_CONTROL = 0;
    FLASH_MODE = to_flash;
    FLASH_OFFSET_HIGH = HIGH(buffer_offset);
    FLASH_OFFSET_LOW = LOW(buffer_offset);
    FLASH_COMMAND = code;
    FLASH_ADDRESS_BYTES = (FLASH_ADDRESS_BYTES & ~0x03) | address_bytes;
    FLASH_ADDRESS_LOW = (u8)place;
    FLASH_ADDRESS_MIDDLE = (u8)(place >> 8);
    FLASH_ADDRESS_HIGH = (u8)(place >> 16);
    FLASH_LENGTH_HIGH = HIGH(data_length);
    FLASH_LENGTH_LOW = LOW(data_length);
    FLASH_START = 0x01;
    while (FLASH_START & 0x01)
        ;
    FLASH_MODE = 0;
}

/* Row 19. */
static void use_in_buffer(void)
{
    FLASH_BUFFER &= ~0x06;
}

static void use_out_buffer(void)
{
    FLASH_BUFFER = (FLASH_BUFFER & ~0x06) | 0x02;
}

/* A command without an address, and what the flash answers. */
static void ask(u8 code, u8 length)
{
    use_in_buffer();
    to_flash = 0;
    buffer_offset = STATUS_AT;
    data_length = length;
    transact(code, NO_ADDRESS);
}

static u8 status(void)
{
    ask(READ_STATUS, 1);
    return IN_BUFFER[STATUS_AT];
}

static u8 ready(void)
{
    u16 left = LONGEST;

    while (status() & BUSY) {
        if (!left--)
            return 0;
        timer_sleep(HALF_MILLISECOND, 1);
    }
    return 1;
}

static u8 enable(void)
{
    ask(WRITE_ENABLE, 0);
    return (status() & (ENABLED | BUSY | PROTECTED)) == ENABLED;
}

void flash_read(u32 address, u16 length)
{
    use_in_buffer();
    place = address;
    to_flash = 0;
    for (buffer_offset = 0; length; length -= data_length) {
        data_length = length < READ_PIECE ? length : READ_PIECE;
        transact(READ, WITH_ADDRESS);
        place += data_length;
        buffer_offset += data_length;
    }
}

static u8 erase_sector(u32 address)
{
    if (!enable())
        return 0;
    place = address;
    data_length = 0;
    transact(ERASE_SECTOR, WITH_ADDRESS);
    return ready();
}

/* Bytes of a buffer, within a page. */
static __xdata u16 source, amount;
static __xdata u8 from_out_buffer;

static u8 program(u32 address)
{
    if (!enable())
        return 0;
    if (from_out_buffer)
        use_out_buffer();
    else
        use_in_buffer();
    place = address;
    buffer_offset = source;
    data_length = amount;
    to_flash = 1;
    transact(PROGRAM, WITH_ADDRESS);
    to_flash = 0;
    return ready();
}

/* -- at start -------------------------------------------------------------------------------------------- */

/* Whether IN_BUFFER begins with a good configuration block 0. */
static u8 is_identity(void)
{
    u8 sum = 0;
    u8 i;

    for (i = SUM_FROM; i < SUM_AT; i++)
        sum += IN_BUFFER[i];
    return IN_BUFFER[MAGIC_AT] == MAGIC && IN_BUFFER[SUM_AT] == sum;
}

void flash_start(void)
{
    u8 i, capacity;

    FLASH_DIVIDER = DIVIDER;
    ask(IDENTIFY, 3);
    capacity = IN_BUFFER[STATUS_AT + 2];
    flash_size = capacity >= LEAST_SIZE && capacity <= LARGEST_SIZE ? 1ul << capacity : 0;
    flash_read(0, FLASH_CONFIG_SIZE);
    flash_has_identity = flash_size && is_identity();
    for (i = 0; i < IDENTITY_SIZE; i++)
        flash_identity[i] = IN_BUFFER[IDENTITY_AT + i];
}

/* -- writing --------------------------------------------------------------------------------------------- */

static __xdata u32 next;   /* where flash_write goes on */
static __xdata u32 sector; /* that is being written */

/* The first bytes of `sector`, or all of it, from flash to `kept`. */
static void keep(u16 length)
{
    u16 i;

    flash_read(sector, length);
    for (i = 0; i < length; i++)
        kept[i] = IN_BUFFER[i];
}

/* Erase it, and write that back. */
static u8 restore(u16 length)
{
    u16 done, i;

    if (!erase_sector(sector))
        return 0;
    from_out_buffer = 0;
    source = 0;
    amount = FLASH_PAGE;
    for (done = 0; done < length; done += FLASH_PAGE) {
        for (i = 0; i < FLASH_PAGE; i++)
            IN_BUFFER[i] = kept[done + i];
        if (!program(sector + done))
            return 0;
    }
    return 1;
}

u8 flash_open(u32 address)
{
    u16 before = (u16)address & (FLASH_SECTOR - 1);

    next = address;
    if (!before)
        return 1; /* flash_write erases it */
    sector = address - before;
    keep(before);
    return restore(before);
}

u8 flash_write(u16 length)
{
    for (source = 0; source < length; source += amount) {
        if (!((u16)next & (FLASH_SECTOR - 1)) && !erase_sector(next))
            return 0;
        from_out_buffer = 1;
        amount = FLASH_PAGE - ((u16)next & (FLASH_PAGE - 1));
        if (amount > length - source)
            amount = length - source;
        if (!program(next))
            return 0;
        next += amount;
    }
    return 1;
}

u8 flash_write_config(u8 index)
{
    __xdata u8 *to = index ? kept + FLASH_CONFIG_SIZE : kept;
    u8 i;

    sector = 0;
    keep(FLASH_SECTOR);
    for (i = 0; i < FLASH_CONFIG_SIZE; i++)
        to[i] = OUT_BUFFER[i];
    return restore(FLASH_SECTOR);
}
