#include "pio.h"

#include "block.h"
#include "bulk.h"
#include "control.h"
#include "fetch.h"
#include "job.h"
#include "list.h"
#include "tlp.h"

enum {
    MODE = REQUEST_TLP_START_INDEX_MODE,
    SINGLE = REQUEST_TLP_START_INDEX_MODE_SINGLE,
    STREAM_WRITE = REQUEST_TLP_START_INDEX_MODE_STREAM_WRITE,
    STREAM_READ = REQUEST_TLP_START_INDEX_MODE_STREAM_READ,
};
enum { MEMORY = TLP_FMT_TYPE_KIND_MRD32, CONFIGURATION = TLP_FMT_TYPE_KIND_CFGRD0 };
enum { WIDE = 0x20, DATA_OR_WIDE = 0x60, DATA_OR_TYPE1 = 0x41 };

volatile __bit pio_waiting;

/* State of the stream: main's. */
static u8 stream;
static u32 dwords_left;

/* Address and data registers are adjacent, each dword most significant byte first. */
#define ENGINE (&TLP_ADDRESS_3)
#define ENGINE_DATA (&TLP_DATA_3)
enum { SWAP = 3, ADDRESS_BYTES = 8, DATA_BYTES = 4 };

static void load_engine(void)
{
    u8 i;

    TLP_FMT_TYPE = setup.value_low;
    TLP_BYTE_ENABLES = setup.value_high;
    for (i = 0; i < ADDRESS_BYTES + DATA_BYTES; i++)
        ENGINE[i ^ SWAP] = EP0_BUFFER[i];
}

static void packet_event(void)
{
    pio_waiting = 1;
}

static void stop(void)
{
    pio_waiting = 0;
}

static void begin_stream(void)
{
    bulk_disarm();
    bulk_on_stop(stop);
    dwords_left = *(volatile __xdata u32 *)(EP0_BUFFER + TLP_REQUEST_VALUE_OFFSET);
    if (stream == STREAM_WRITE) {
        bulk_on_out(packet_event);
        bulk_arm_out();
    } else {
        bulk_on_in(packet_event);
        pio_waiting = 1;
    }
}

/* The job of a request. Its transfer is open, so its data stage is still in EP0_BUFFER. */
static void start(void)
{
    HOLD;
    if (control_is_open()) {
        load_engine();
        stream = setup.index_low & MODE;
        if (stream)
            begin_stream();
        else
            tlp_launch();
        control_finish();
    }
    RELEASE;
}

static void post_start(void)
{
    job_post(start);
    control_leave_open();
}

/* Single requests are of any kind that the engine is known to send; streams write or read memory. */
static u8 is_known(u8 format, u8 mode)
{
    switch (mode) {
    case SINGLE:
        return (format & (u8)~DATA_OR_WIDE) == MEMORY || (format & (u8)~DATA_OR_TYPE1) == CONFIGURATION;
    case STREAM_WRITE:
        return (format & (u8)~WIDE) == TLP_FMT_TYPE_KIND_MWR32;
    case STREAM_READ:
        return (format & (u8)~WIDE) == TLP_FMT_TYPE_KIND_MRD32;
    default:
        return 0;
    }
}

void pio_request(void)
{
    if (!is_known(setup.value_low, setup.index_low & MODE) ||
        setup.value_high & (u8)~TLP_BYTE_ENABLES_FIRST) {
        control_stall();
        return;
    }
    list_close();
    control_receive(post_start);
}

static u8 launch_status(u8 cause)
{
    switch (cause) {
    case RESULT_TRAILER_CAUSE_COMPLETION_TIMEOUT:
    case RESULT_TRAILER_CAUSE_LINK_DOWN:
        return TLP_RESULT_STATUS_THE_ERROR_BIT_CAME_UP;
    case RESULT_TRAILER_CAUSE_NO_COMPLETION:
        return TLP_RESULT_STATUS_NO_COMPLETION_WITHIN_500000_POLLS;
    default:
        return TLP_RESULT_STATUS_COMPLETED;
    }
}

/* The job of the request towards the host. */
static void answer(void)
{
    u8 status = launch_status(tlp_wait());
    u8 i;

    HOLD;
    if (control_is_open()) {
        for (i = 0; i < DATA_BYTES; i++)
            EP0_BUFFER[i] = ENGINE_DATA[i ^ SWAP];
        EP0_BUFFER[TLP_RESULT_COMPLETION_OFFSET] = TLP_COMPLETION_STATUS_HIGH;
        EP0_BUFFER[TLP_RESULT_COMPLETION_OFFSET + 1] = TLP_COMPLETION_STATUS_LOW;
        EP0_BUFFER[TLP_RESULT_HAS_DATA_OFFSET] = TLP_COMPLETION_KIND;
        EP0_BUFFER[TLP_RESULT_STATUS_OFFSET] = status;
        control_send(TLP_RESULT_SIZE);
    }
    RELEASE;
}

void pio_status(void)
{
    list_close();
    job_post(answer);
    control_leave_open();
}

/* Take up to this many dwords from those that are left. Returns how many were taken. */
static u16 take(u16 dwords)
{
    if (dwords > dwords_left)
        dwords = (u16)dwords_left;
    dwords_left -= dwords;
    return dwords;
}

/* block_write begins behind the header of a packet of payload: in a stream a dword is in its place. */
static void write_packet(void)
{
    u16 length = bulk_received();
    u16 dwords = length >> 2;
    u8 i;

    if (length & 3 || take(dwords) != dwords)
        return;
    if (dwords) {
        for (i = 0; i < DATA_BYTES; i++)
            ENGINE_DATA[i ^ SWAP] = BULK_OUT_BUFFER[i];
        tlp_launch();
        tlp_next_dword();
    }
    if (dwords > 1)
        block_write((u8)(dwords - 1));
    if (dwords_left)
        bulk_continue_out();
}

static void read_packet(void)
{
    u16 dwords = take(bulk_packet_size() >> 2);
    u16 missing;

    if (!dwords)
        return;
    block_place = BULK_IN_BUFFER;
    missing = fetch(dwords);
    if (missing)
        dwords_left = 0;
    bulk_continue_in((dwords - missing) << 2);
}

void pio_run(void)
{
    if (!pio_waiting)
        return;
    pio_waiting = 0;
    block_step = DATA_BYTES;
    if (stream == STREAM_WRITE)
        write_packet();
    else if (stream == STREAM_READ)
        read_packet();
}
