#include "control.h"

#include "extra.h"
#include "job.h"
#include "standard.h"
#include "supply.h"
#include "usb.h"
#include "vendor.h"

struct setup setup;

static void (*data_handler)(void);
/* The transfer waits for main; and the host waits in the status stage. */
static __bit open, host_waits;

static void send(u16 length)
{
    EP0_IN_LENGTH_HIGH = HIGH(length);
    EP0_IN_LENGTH_LOW = LOW(length);
    EP0_COMMAND = EP0_COMMAND_SEND;
}

/* If the answer is full packets, and shorter than the host asks for, an empty packet marks its end. */
void control_send(u16 length)
{
    u8 tries = 255;

    open = 0;
    if (length >= setup.length) {
        send(setup.length);
        return;
    }
    send(length);
    if (length && (length & (usb_high_speed ? 63 : 511)) == 0) {
        while (EP0_COMMAND && --tries)
            ;
        send(0);
    }
}

void control_accept(void)
{
    send(0);
}

void control_receive(void (*arrived)(void))
{
    if (setup.length > EP0_BUFFER_SIZE)
        control_stall();
    else
        data_handler = arrived;
}

void control_stall(void)
{
    EP0_COMMAND = EP0_COMMAND_STALL;
}

void control_leave_open(void)
{
    open = 1;
}

u8 control_is_open(void)
{
    return open && !GIVEN_UP;
}

void control_finish(void)
{
    open = 0;
    send(0);
    if (host_waits && !usb_high_speed)
        EP0_COMMAND = EP0_COMMAND_FINISH_STATUS;
}

void control_reset(void)
{
    data_handler = 0;
    open = host_waits = 0;
    supply_wanted = 0;
}

static u8 has_length(u8 length)
{
    return length == ANY_LENGTH ? setup.length != 0 : setup.length == length;
}

static u8 dispatch(const __code struct request *request)
{
    for (; request->handler; request++)
        if (request->type == setup.type && request->request == setup.request && has_length(request->length)) {
            request->handler();
            return 1;
        }
    return 0;
}

/* struct setup has the layout of the registers, which is that of the packet. At the end the host mostly waits
 * for data already: it has been answered, or main will, and needs no interrupt for that. */
static void begin(void)
{
    u8 i;

    EP0_PHASE = EP0_PHASE_SETUP;
    control_reset();
    for (i = 0; i != SETUP_PACKET_SIZE; i++)
        ((u8 *)&setup)[i] = (&EP0_REQUEST_TYPE)[i];
    if (!dispatch(standard_requests) && !dispatch(vendor_requests) && !dispatch(extra_requests))
        control_stall();
    EP0_PHASE = EP0_PHASE_IN_WANTED;
}

/* At SuperSpeed the status stage waits for a command of its own; at High Speed for an empty packet, which a
 * transfer without data has already prepared. */
static void finish(u8 phase)
{
    void (*handler)(void) = data_handler;

    data_handler = 0;
    if (handler)
        handler();
    if (open)
        host_waits = 1;
    else if (phase & EP0_PHASE_STATUS_IN_SS)
        EP0_COMMAND = EP0_COMMAND_FINISH_STATUS;
    else if (handler)
        send(0);
    EP0_PHASE = EP0_PHASE_IN_WANTED | EP0_PHASE_STATUS_IN_SS;
}

void control_event(void)
{
    u8 phase = EP0_PHASE;

    if (phase & EP0_PHASE_SETUP) {
        begin();
    } else if (phase & EP0_PHASE_STATUS_OUT) {
        open = 0;
        EP0_COMMAND = EP0_COMMAND_ACCEPT_STATUS;
        EP0_PHASE = EP0_PHASE_STATUS_OUT;
    } else if (phase & (EP0_PHASE_IN_WANTED | EP0_PHASE_STATUS_IN_SS)) {
        finish(phase);
    } else {
        EP0_PHASE = EP0_PHASE_DATA_OUT;
    }
}
