#include "control.h"

#include "selftest.h"
#include "standard.h"
#include "usb.h"
#include "vendor.h"

struct setup setup;

static void (*data_handler)(void);

static void send(u16 length)
{
    EP0_IN_LENGTH_HIGH = HIGH(length);
    EP0_IN_LENGTH_LOW = LOW(length);
    EP0_COMMAND = EP0_COMMAND_SEND;
    EP0_PHASE = EP0_PHASE_STATUS_IN_HS;
}

/* Whole packets that are fewer than the host wants do not tell it that they are all: an empty one does. */
void control_send(u16 length)
{
    u8 tries = 255;

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
    if (setup.length)
        control_stall();
    else
        send(0);
}

void control_receive(void (*arrived)(void))
{
    if (setup.length == 0 || setup.length > EP0_BUFFER_SIZE)
        control_stall();
    else
        data_handler = arrived;
}

void control_stall(void)
{
    EP0_COMMAND = EP0_COMMAND_STALL;
}

static u8 dispatch(const __code struct request *request)
{
    for (; request->handler; request++)
        if (request->type == setup.type && request->request == setup.request) {
            request->handler();
            return 1;
        }
    return 0;
}

static void begin(void)
{
    EP0_PHASE = EP0_PHASE_SETUP;
    data_handler = 0;
    setup.type = EP0_REQUEST_TYPE;
    setup.request = EP0_REQUEST;
    setup.value_low = EP0_REQUEST_VALUE_LOW;
    setup.value_high = EP0_REQUEST_VALUE_HIGH;
    setup.index_low = EP0_REQUEST_INDEX_LOW;
    setup.index_high = EP0_REQUEST_INDEX_HIGH;
    setup.length = EP0_REQUEST_LENGTH_LOW | (u16)EP0_REQUEST_LENGTH_HIGH << 8;
    if (!dispatch(standard_requests) && !dispatch(vendor_requests) && !dispatch(selftest_requests))
        control_stall();
}

/* At SuperSpeed the status stage waits for a command of its own; at High Speed for a packet of no bytes,
 * which a transfer without data has prepared already. */
static void finish(u8 phase)
{
    void (*handler)(void) = data_handler;

    data_handler = 0;
    if (handler)
        handler();
    if (phase & EP0_PHASE_STATUS_IN_SS)
        EP0_COMMAND = EP0_COMMAND_FINISH_STATUS;
    else if (handler)
        send(0);
    EP0_PHASE = EP0_PHASE_STATUS_IN_HS | EP0_PHASE_STATUS_IN_SS;
}

void control_event(void)
{
    u8 phase = EP0_PHASE;

    if (phase & EP0_PHASE_SETUP) {
        begin();
    } else if (phase & EP0_PHASE_STATUS_OUT) {
        EP0_COMMAND = EP0_COMMAND_ACCEPT_STATUS;
        EP0_PHASE = EP0_PHASE_STATUS_OUT;
    } else if (phase & (EP0_PHASE_STATUS_IN_HS | EP0_PHASE_STATUS_IN_SS)) {
        finish(phase);
    } else {
        EP0_PHASE = EP0_PHASE_DATA_OUT;
    }
}
