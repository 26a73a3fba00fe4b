#include "vendor.h"

#include "flash.h"
#include "scsi.h"

enum {
    CONFIG_READ = 0xE0,
    CONFIG_WRITE = 0xE1,
    FLASH_READ = 0xE2,
    FLASH_WRITE = 0xE3,
    XDATA_READ = 0xE4,
    XDATA_WRITE = 0xE5,
    RESTART = 0xE8,
};
enum { FIRST_PART = 0x50, SECOND_PART = 0xD0, KEY = 0x50, XDATA_MARK = 0x50 };
enum { RESTART_CPU = 0x00, RESTART_SOFTLY = 0x01, RESTART_IMAGE = 0x51 };

static __xdata u8 code;   /* of the command, 0 if it is none of these */
static __xdata u8 block;  /* of CONFIG_WRITE */
static __xdata u8 opened; /* of FLASH_WRITE: something has been written */
static __xdata u32 place; /* in the flash */

static u8 wrong_field(void)
{
    return scsi_fail(ILLEGAL_REQUEST, WRONG_FIELD);
}

static u8 data(u8 direction, u32 amount)
{
    if (direction == FROM_HOST && !flash_size)
        return scsi_fail(MEDIUM_ERROR, WRITE_FAULT);
    scsi_direction = direction;
    scsi_amount = amount;
    return 1;
}

/* Row 22: where the parts are. They meet at FLASH_SECOND_PART. */
static u8 find_part(__xdata u8 *cdb)
{
    static __xdata u32 end, length;

    if (cdb[1] == FIRST_PART) {
        place = FLASH_IMAGE;
        end = FLASH_SECOND_PART;
    } else if (cdb[1] == SECOND_PART) {
        place = FLASH_SECOND_PART;
        end = flash_size;
    } else {
        return wrong_field();
    }
    opened = 0;
    length = (u32)cdb[2] << 24 | (u32)cdb[3] << 16 | (u16)cdb[4] << 8 | cdb[5];
    if (length > end - place)
        return wrong_field();
    return data(code == FLASH_READ ? FOR_HOST : FROM_HOST, length);
}

static u8 read_config(__xdata u8 *cdb)
{
    if (cdb[1] > 1)
        return wrong_field();
    place = cdb[1] ? FLASH_CONFIG_SIZE : 0;
    return data(FOR_HOST, FLASH_CONFIG_SIZE);
}

static u8 write_config(__xdata u8 *cdb)
{
    if (cdb[1] != KEY || cdb[2] > 1)
        return wrong_field();
    block = cdb[2];
    return data(FROM_HOST, FLASH_CONFIG_SIZE);
}

/* DPX concerns every MOVX, those of the handlers too: no interrupt may come between. */
static u8 peek(u8 plane, u16 address)
{
    u8 value;

    EA = 0;
    DPX = plane;
    value = XDATA(address);
    DPX = 0;
    EA = 1;
    return value;
}

static void poke(u8 plane, u16 address, u8 value)
{
    EA = 0;
    DPX = plane;
    XDATA(address) = value;
    DPX = 0;
    EA = 1;
}

static u8 access_xdata(__xdata u8 *cdb)
{
    u16 address = (u16)cdb[3] << 8 | cdb[4];
    u8 plane = cdb[2] & 0x01;
    u8 i;

    if ((cdb[2] & 0xFE) != XDATA_MARK)
        return wrong_field();
    if (code == XDATA_WRITE) {
        poke(plane, address, cdb[1]);
        return 1;
    }
    for (i = 0; i < cdb[1]; i++)
        IN_BUFFER[i] = peek(plane, address + i);
    return data(FOR_HOST, cdb[1]);
}

static u8 is_restart(u8 kind)
{
    return kind == RESTART_CPU || kind == RESTART_SOFTLY || kind == RESTART_IMAGE;
}

void vendor_idle(void)
{
    code = 0;
}

u8 vendor_begin(__xdata u8 *cdb)
{
    u8 done = 0;

    code = cdb[0];
    switch (code) {
    case CONFIG_READ:
        done = read_config(cdb);
        break;
    case CONFIG_WRITE:
        done = write_config(cdb);
        break;
    case FLASH_READ:
    case FLASH_WRITE:
        done = find_part(cdb);
        break;
    case XDATA_READ:
    case XDATA_WRITE:
        done = access_xdata(cdb);
        break;
    case RESTART:
        done = is_restart(cdb[1]) || wrong_field();
        break;
    default:
        scsi_fail(ILLEGAL_REQUEST, NO_SUCH_COMMAND);
    }
    if (!done)
        code = 0;
    return done;
}

/* Flash goes to the host out of the buffer that it was read into (row 19); all else is there already. */
void vendor_fill(u16 length)
{
    if (code == CONFIG_READ || code == FLASH_READ) {
        flash_read(place, length);
        place += length;
    }
}

/* Nothing is erased before the host has sent something. */
static u8 write_flash(u16 length)
{
    if (!opened && !flash_open(place))
        return 0;
    opened = 1;
    return flash_write(length);
}

u8 vendor_drain(u16 length)
{
    if (code == FLASH_WRITE)
        return write_flash(length) || scsi_fail(MEDIUM_ERROR, WRITE_FAULT);
    if (length != FLASH_CONFIG_SIZE)
        return scsi_fail(ILLEGAL_REQUEST, WRONG_PARAMETER);
    return flash_write_config(block) || scsi_fail(MEDIUM_ERROR, WRITE_FAULT);
}

/* The code is not loaded again: after RESTART_IMAGE the new image runs from the next power-on. */
void vendor_afterwards(void)
{
    if (code == RESTART)
        CPU_RESTART = 0x01;
}
