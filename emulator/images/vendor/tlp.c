#include "tlp.h"

#include "bulk.h"
#include "control.h"

enum {
    MODE = REQUEST_TLP_START_INDEX_MODE,
    SINGLE = REQUEST_TLP_START_INDEX_MODE_SINGLE,
    STREAM_WRITE = REQUEST_TLP_START_INDEX_MODE_STREAM_WRITE,
    STREAM_READ = REQUEST_TLP_START_INDEX_MODE_STREAM_READ,
};
enum { OK = 0x00, FAILED = 0x01, TIMED_OUT = 0xFF };
/* Of 34 clocks each: 149 ms, three times as long as the hardware is thought to wait. */
#define POLLS 500000

static u32 dwords_left;

static void launch(void)
{
    TLP_STATUS = TLP_STATUS_ERROR | TLP_STATUS_COMPLETE | TLP_STATUS_SENT;
    TLP_LAUNCH = TLP_LAUNCH_CODE_REQUEST;
}

static u8 is_posted(void)
{
    return (TLP_FMT_TYPE & 0xDF) == 0x40;
}

static u8 outcome(void)
{
    u32 polls;
    u8 status;

    if (is_posted())
        return OK;
    for (polls = POLLS; polls; polls--) {
        status = TLP_STATUS;
        if (status & TLP_STATUS_ERROR)
            return FAILED;
        if (status & TLP_STATUS_COMPLETE)
            return OK;
    }
    return TIMED_OUT;
}

/* The engine does not advance its address. */
static void next_dword(void)
{
    if (TLP_ADDRESS_0 += 4)
        return;
    if (++TLP_ADDRESS_1)
        return;
    if (++TLP_ADDRESS_2)
        return;
    if (++TLP_ADDRESS_3)
        return;
    if (++TLP_ADDRESS_HIGH_0)
        return;
    ++TLP_ADDRESS_HIGH_1;
}

static void write_packet(void)
{
    u16 length = bulk_received();
    u16 dwords = length >> 2;
    volatile __xdata u8 *data = BULK_OUT_BUFFER;

    if (length & 3 || dwords > dwords_left)
        return;
    dwords_left -= dwords;
    for (; dwords; dwords--) {
        TLP_DATA_0 = *data++;
        TLP_DATA_1 = *data++;
        TLP_DATA_2 = *data++;
        TLP_DATA_3 = *data++;
        launch();
        next_dword();
    }
    if (dwords_left)
        bulk_arm_out();
}

static void read_packet(void)
{
    u16 limit = bulk_packet_size() >> 2;
    u16 dwords = dwords_left < limit ? dwords_left : limit;
    u16 length = dwords << 2;
    volatile __xdata u8 *data = BULK_IN_BUFFER;

    if (!dwords)
        return;
    dwords_left -= dwords;
    for (; dwords; dwords--) {
        launch();
        if (outcome() != OK)
            return;
        *data++ = TLP_DATA_0;
        *data++ = TLP_DATA_1;
        *data++ = TLP_DATA_2;
        *data++ = TLP_DATA_3;
        next_dword();
    }
    bulk_arm_in(length);
}

static u32 third_dword(void)
{
    return EP0_BUFFER[8] | (u16)EP0_BUFFER[9] << 8 | (u32)EP0_BUFFER[10] << 16 | (u32)EP0_BUFFER[11] << 24;
}

void tlp_start(void)
{
    TLP_FMT_TYPE = setup.value_low;
    TLP_BYTE_ENABLES = setup.value_high;
    TLP_ADDRESS_0 = EP0_BUFFER[0];
    TLP_ADDRESS_1 = EP0_BUFFER[1];
    TLP_ADDRESS_2 = EP0_BUFFER[2];
    TLP_ADDRESS_3 = EP0_BUFFER[3];
    TLP_ADDRESS_HIGH_0 = EP0_BUFFER[4];
    TLP_ADDRESS_HIGH_1 = EP0_BUFFER[5];
    TLP_ADDRESS_HIGH_2 = EP0_BUFFER[6];
    TLP_ADDRESS_HIGH_3 = EP0_BUFFER[7];
    switch (setup.index_low & MODE) {
    case SINGLE:
        TLP_DATA_0 = EP0_BUFFER[8];
        TLP_DATA_1 = EP0_BUFFER[9];
        TLP_DATA_2 = EP0_BUFFER[10];
        TLP_DATA_3 = EP0_BUFFER[11];
        launch();
        break;
    case STREAM_WRITE:
        dwords_left = third_dword();
        bulk_on_out(write_packet);
        bulk_arm_out();
        break;
    case STREAM_READ:
        dwords_left = third_dword();
        bulk_on_in(read_packet);
        read_packet();
        break;
    }
}

void tlp_result(void)
{
    u8 status = outcome();

    EP0_BUFFER[0] = TLP_DATA_0;
    EP0_BUFFER[1] = TLP_DATA_1;
    EP0_BUFFER[2] = TLP_DATA_2;
    EP0_BUFFER[3] = TLP_DATA_3;
    EP0_BUFFER[4] = TLP_COMPLETION_STATUS_HIGH;
    EP0_BUFFER[5] = TLP_COMPLETION_STATUS_LOW;
    EP0_BUFFER[6] = TLP_COMPLETION_KIND;
    EP0_BUFFER[7] = status;
}
