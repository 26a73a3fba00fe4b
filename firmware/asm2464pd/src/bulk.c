#include "bulk.h"

#include "job.h"
#include "usb.h"

enum { SUPER_SPEED_PACKET = 1024, HIGH_SPEED_PACKET = 512, FULL_SPEED_PACKET = 64 };

static void ignore(void)
{
}

/* The user's callback. The endpoints are stopped once before they have a user. */
static void (*out_handler)(void);
static void (*in_handler)(void);
static void (*stop_handler)(void) = ignore;

static __bit out_armed, in_armed;
static __bit out_halted, in_halted;

u16 bulk_packet_size(void)
{
    if (!usb_high_speed)
        return SUPER_SPEED_PACKET;
    return usb_is_full_speed() ? FULL_SPEED_PACKET : HIGH_SPEED_PACKET;
}

static void clear_out(void)
{
    BULK_COMMAND = BULK_COMMAND_CLEAR_OUT;
    BULK_EVENTS = BULK_EVENTS_OUT_DONE;
    out_armed = 0;
}

static void clear_in(void)
{
    BULK_COMMAND = BULK_COMMAND_CLEAR_IN;
    BULK_EVENTS = BULK_EVENTS_IN_DONE;
    in_armed = 0;
}

void bulk_disarm(void)
{
    out_handler = in_handler = stop_handler = ignore;
    if (in_armed)
        clear_in();
    if (out_armed)
        clear_out();
}

void bulk_release(void)
{
    stop_handler();
    job_abort();
    bulk_disarm();
}

void bulk_stop(void)
{
    bulk_release();
    clear_in();
    clear_out();
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

void bulk_on_stop(void (*handler)(void))
{
    stop_handler = handler;
}

void bulk_arm_out(void)
{
    if (out_halted)
        return;
    out_armed = 1;
    BULK_COMMAND = BULK_COMMAND_ARM_OUT;
}

void bulk_arm_in(u16 length)
{
    if (in_halted)
        return;
    in_armed = 1;
    BULK_IN_LENGTH_HIGH = HIGH(length);
    BULK_IN_LENGTH_LOW = LOW(length);
    BULK_COMMAND = BULK_COMMAND_ARM_IN;
}

u16 bulk_received(void)
{
    return BULK_OUT_COUNT_LOW | (u16)BULK_OUT_COUNT_HIGH << 8;
}

void bulk_continue_out(void)
{
    HOLD;
    if (!GIVEN_UP)
        bulk_arm_out();
    RELEASE;
}

void bulk_continue_in(u16 length)
{
    HOLD;
    if (!GIVEN_UP)
        bulk_arm_in(length);
    RELEASE;
}

u8 bulk_halted(u8 endpoint)
{
    return endpoint == BULK_OUT ? out_halted : in_halted;
}

void bulk_clear_halt(u8 endpoint)
{
    bulk_release();
    if (endpoint == BULK_OUT) {
        clear_out();
        out_halted = 0;
    } else {
        clear_in();
        in_halted = 0;
    }
}

void bulk_halt(u8 endpoint)
{
    bulk_clear_halt(endpoint);
    if (endpoint == BULK_OUT)
        out_halted = 1;
    else
        in_halted = 1;
}

void bulk_event(void)
{
    u8 events = BULK_EVENTS;

    BULK_EVENTS = events;
    if (events & BULK_EVENTS_OUT_DONE) {
        out_armed = 0;
        out_handler();
    }
    if (events & BULK_EVENTS_IN_DONE) {
        in_armed = 0;
        in_handler();
    }
}
