#include "bulk.h"

#include "usb.h"

static void (*out_handler)(void);
static void (*in_handler)(void);
static u8 out_halted, in_halted;

static void ignore(void)
{
}

u16 bulk_packet_size(void)
{
    return usb_high_speed ? 512 : 1024;
}

static void stop_out(void)
{
    BULK_COMMAND = BULK_COMMAND_CLEAR_OUT;
    out_handler = ignore;
}

static void stop_in(void)
{
    BULK_COMMAND = BULK_COMMAND_CLEAR_IN;
    in_handler = ignore;
}

void bulk_stop(void)
{
    stop_in();
    stop_out();
    in_halted = out_halted = 0;
}

void bulk_on_out(void (*handler)(void))
{
    out_handler = handler;
}

void bulk_on_in(void (*handler)(void))
{
    in_handler = handler;
}

void bulk_arm_out(void)
{
    if (!out_halted)
        BULK_COMMAND = BULK_COMMAND_ARM_OUT;
}

void bulk_arm_in(u16 length)
{
    if (in_halted)
        return;
    BULK_IN_LENGTH_HIGH = HIGH(length);
    BULK_IN_LENGTH_LOW = LOW(length);
    BULK_COMMAND = BULK_COMMAND_ARM_IN;
}

u16 bulk_received(void)
{
    return BULK_OUT_COUNT_LOW | (u16)BULK_OUT_COUNT_HIGH << 8;
}

u8 bulk_halted(u8 endpoint)
{
    return endpoint == BULK_OUT ? out_halted : in_halted;
}

void bulk_halt(u8 endpoint)
{
    if (endpoint == BULK_OUT) {
        stop_out();
        out_halted = 1;
    } else {
        stop_in();
        in_halted = 1;
    }
}

void bulk_clear_halt(u8 endpoint)
{
    if (endpoint == BULK_OUT) {
        stop_out();
        out_halted = 0;
    } else {
        stop_in();
        in_halted = 0;
    }
}

void bulk_event(void)
{
    u8 events = BULK_EVENTS;

    BULK_EVENTS = events;
    if (events & BULK_EVENTS_OUT_DONE)
        out_handler();
    if (events & BULK_EVENTS_IN_DONE)
        in_handler();
}
