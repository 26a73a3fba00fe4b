#include "scsi.h"

#include "vendor.h"

enum { TEST_UNIT_READY = 0x00, REQUEST_SENSE = 0x03, INQUIRY = 0x12, START_STOP = 0x1B };
enum { READ_CAPACITY = 0x25, READ_10 = 0x28, WRITE_10 = 0x2A, FIRST_VENDOR = 0xE0 };
enum { SENSE_SIZE = 18, INQUIRY_SIZE = 36, VITAL_PRODUCT_DATA = 0x01 };

__xdata u8 scsi_direction;
__xdata u32 scsi_amount;

static __xdata u8 sense_key, sense_code;

/* Direct access, removable, SPC-4, response format 2. */
static const __code u8 inquiry_data[INQUIRY_SIZE + 1] =
    "\x00\x80\x06\x02\x1f\0\0\0towline maker's style   0001";

u8 scsi_fail(u8 key, u8 code)
{
    sense_key = key;
    sense_code = code;
    scsi_amount = 0;
    return 0;
}

static u8 for_host(u8 size, u8 allocated_high, u8 allocated_low)
{
    if (!allocated_high && allocated_low < size)
        size = allocated_low;
    scsi_direction = FOR_HOST;
    scsi_amount = size;
    return 1;
}

static u8 request_sense(__xdata u8 *cdb)
{
    u8 i;

    for (i = 0; i < SENSE_SIZE; i++)
        IN_BUFFER[i] = 0;
    IN_BUFFER[0] = 0x70; /* current, fixed format */
    IN_BUFFER[2] = sense_key;
    IN_BUFFER[7] = SENSE_SIZE - 8;
    IN_BUFFER[12] = sense_code;
    sense_key = sense_code = 0;
    return for_host(SENSE_SIZE, 0, cdb[4]);
}

static u8 inquiry(__xdata u8 *cdb)
{
    u8 i;

    if (cdb[1] & VITAL_PRODUCT_DATA)
        return scsi_fail(ILLEGAL_REQUEST, WRONG_FIELD);
    for (i = 0; i < INQUIRY_SIZE; i++)
        IN_BUFFER[i] = inquiry_data[i];
    return for_host(INQUIRY_SIZE, cdb[3], cdb[4]);
}

u8 scsi_begin(__xdata u8 *cdb, u8 length)
{
    for (; length < 16; length++)
        cdb[length] = 0;
    scsi_direction = NO_DATA;
    scsi_amount = 0;
    vendor_idle();
    if (cdb[0] == REQUEST_SENSE)
        return request_sense(cdb);
    sense_key = sense_code = 0;
    if (cdb[0] >= FIRST_VENDOR)
        return vendor_begin(cdb);
    switch (cdb[0]) {
    case INQUIRY:
        return inquiry(cdb);
    case TEST_UNIT_READY:
    case START_STOP:
    case READ_CAPACITY:
    case READ_10:
    case WRITE_10:
        return scsi_fail(NOT_READY, NO_MEDIUM);
    }
    return scsi_fail(ILLEGAL_REQUEST, NO_SUCH_COMMAND);
}

void scsi_fill(u16 length)
{
    vendor_fill(length);
}

u8 scsi_drain(u16 length)
{
    return vendor_drain(length);
}

void scsi_afterwards(void)
{
    vendor_afterwards();
}
