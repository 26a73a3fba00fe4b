#include "selftest.h"

#include "bulk.h"

enum { ECHO = 0xA0, BULK = 0xA2, COUNT = 0xA3 };
enum { IDLE = 0, LOOPBACK = 1, SOURCE = 2, SINK = 3 };

static __xdata u8 kept[EP0_BUFFER_SIZE];
static __xdata u16 kept_length;
static __xdata u32 taken;

static void keep(void)
{
    u16 i;

    kept_length = setup.length;
    for (i = 0; i < kept_length; i++)
        kept[i] = EP0_BUFFER[i];
}

static void receive_echo(void)
{
    control_receive(keep);
}

static void send_echo(void)
{
    u16 i;

    for (i = 0; i < kept_length; i++)
        EP0_BUFFER[i] = kept[i];
    control_send(kept_length);
}

static void loop_back(void)
{
    u16 length = bulk_received();
    u16 left;
    volatile __xdata u8 *from = BULK_OUT_BUFFER;
    volatile __xdata u8 *to = BULK_IN_BUFFER;

    taken += length;
    for (left = length; left; left--)
        *to++ = *from++;
    bulk_arm_in(length);
}

static void give_packet(void)
{
    bulk_arm_in(bulk_packet_size());
}

static void take_packet(void)
{
    taken += bulk_received();
    bulk_arm_out();
}

static void fill(void)
{
    u16 i;

    for (i = 0; i < bulk_packet_size(); i++)
        BULK_IN_BUFFER[i] = LOW(i);
}

static void use_bulk(void)
{
    bulk_stop();
    taken = 0;
    switch (setup.value_low) {
    case LOOPBACK:
        bulk_on_out(loop_back);
        bulk_on_in(bulk_arm_out);
        bulk_arm_out();
        break;
    case SOURCE:
        fill();
        bulk_on_in(give_packet);
        give_packet();
        break;
    case SINK:
        bulk_on_out(take_packet);
        bulk_arm_out();
        break;
    case IDLE:
        break;
    default:
        control_stall();
        return;
    }
    control_accept();
}

static void send_count(void)
{
    EP0_BUFFER[0] = LOW(taken);
    EP0_BUFFER[1] = LOW(taken >> 8);
    EP0_BUFFER[2] = LOW(taken >> 16);
    EP0_BUFFER[3] = LOW(taken >> 24);
    control_send(4);
}

const __code struct request extra_requests[] = {
    {HOST_TO_DEVICE | VENDOR, ECHO, ANY_LENGTH, receive_echo},
    {DEVICE_TO_HOST | VENDOR, ECHO, ANY_LENGTH, send_echo},
    {HOST_TO_DEVICE | VENDOR, BULK, 0, use_bulk},
    {DEVICE_TO_HOST | VENDOR, COUNT, 4, send_count},
    {0, 0, 0, 0},
};
