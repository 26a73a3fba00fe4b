#include "standard.h"

#include "control.h"
#include "descriptors.h"
#include "engine.h"

enum { GET_STATUS = 0, CLEAR_FEATURE = 1, SET_FEATURE = 3, SET_ADDRESS = 5, GET_DESCRIPTOR = 6 };
enum { GET_CONFIGURATION = 8, SET_CONFIGURATION = 9, GET_INTERFACE = 10, SET_INTERFACE = 11 };
enum { SET_SEL = 48, SET_ISOCH_DELAY = 49, GET_MAX_LUN = 0xFE, CLASS_RESET = 0xFF };
enum { ENDPOINT_HALT = 0, FUNCTION_SUSPEND = 0, U1_ENABLE = 48, U2_ENABLE = 49 };
enum { BULK_IN = 0x81, BULK_OUT = 0x02 };
/* Of the device's status. */
enum { SELF_POWERED = 0x01, U1_ENABLED = 0x04, U2_ENABLED = 0x08 };

static u8 configuration;
static u8 device_status;

/* -- what a request means; each is 1 if it is accepted, and has prepared the reply ----------------------- */

static u8 reply(u8 length)
{
    control_send(length);
    return 1;
}

static u8 reply_byte(u8 byte)
{
    EP0_BUFFER[0] = byte;
    return reply(1);
}

static u8 reply_status(u8 status)
{
    EP0_BUFFER[0] = status;
    EP0_BUFFER[1] = 0;
    return reply(2);
}

static u8 wants(u8 length)
{
    return setup.length_low == length && setup.length_high == 0;
}

static u8 to_interface(void)
{
    return configuration && setup.index_low == 0;
}

static u8 to_endpoint(void)
{
    return configuration && setup.index_high == 0 &&
           (setup.index_low == BULK_IN || setup.index_low == BULK_OUT);
}

static u8 names(u8 feature)
{
    return setup.value_low == feature && setup.value_high == 0;
}

static u8 endpoint_status(void)
{
    if ((setup.index_low & 0x7F) == 0)
        return reply_status(0);
    return to_endpoint() && reply_status(engine_halted(setup.index_low));
}

static u8 endpoint_feature(void)
{
    if (!to_endpoint() || !names(ENDPOINT_HALT))
        return 0;
    if (setup.request == SET_FEATURE)
        engine_halt(setup.index_low);
    else
        engine_clear_halt(setup.index_low);
    return 1;
}

/* The controller enters U1 and U2 by itself; what is asked for is only kept. */
static u8 device_feature(void)
{
    u8 bit = names(U1_ENABLE) ? U1_ENABLED : names(U2_ENABLE) ? U2_ENABLED : 0;

    if (IS_HIGH_SPEED || !configuration || !bit)
        return 0;
    if (setup.request == SET_FEATURE)
        device_status |= bit;
    else
        device_status &= ~bit;
    return 1;
}

static u8 set_address(void)
{
    if (setup.value_high || setup.value_low > 127)
        return 0;
    ADDRESS = 0x80 | setup.value_low;
    ADDRESS_COMMIT = 0x02;
    return 1;
}

static u8 set_configuration(void)
{
    if (setup.value_high || setup.value_low > 1)
        return 0;
    configuration = setup.value_low;
    device_status = SELF_POWERED;
    engine_abort();
    return 1;
}

/* Setting 0, bulk-only, is the only one. Hosts that try 1 for USB Attached SCSI are refused. */
static u8 set_interface(void)
{
    if (!to_interface() || setup.value_low || setup.value_high)
        return 0;
    engine_abort();
    return 1;
}

static u8 get_descriptor(void)
{
    u8 length = descriptor_copy(setup.value_high, setup.value_low);

    return length && reply(length);
}

/* -- which request it is --------------------------------------------------------------------------------- */

static u8 from_device(void)
{
    switch (setup.request) {
    case GET_STATUS:
        return wants(2) && reply_status(device_status);
    case GET_DESCRIPTOR:
        return get_descriptor();
    case GET_CONFIGURATION:
        return wants(1) && reply_byte(configuration);
    }
    return 0;
}

static u8 to_device(void)
{
    if (setup.request == SET_SEL)
        return !IS_HIGH_SPEED && wants(6); /* the data comes, and is acknowledged */
    if (!wants(0))
        return 0;
    switch (setup.request) {
    case CLEAR_FEATURE:
    case SET_FEATURE:
        return device_feature();
    case SET_ADDRESS:
        return set_address();
    case SET_CONFIGURATION:
        return set_configuration();
    case SET_ISOCH_DELAY:
        return !IS_HIGH_SPEED;
    }
    return 0;
}

static u8 interface_request(void)
{
    if (!wants(0))
        return 0;
    switch (setup.request) {
    case CLEAR_FEATURE:
    case SET_FEATURE:
        return !IS_HIGH_SPEED && to_interface() && names(FUNCTION_SUSPEND);
    case SET_INTERFACE:
        return set_interface();
    }
    return 0;
}

static u8 answer(void)
{
    switch (setup.type) {
    case 0x80:
        return from_device();
    case 0x00:
        return to_device();
    case 0x81:
        if (setup.request == GET_STATUS)
            return wants(2) && to_interface() && reply_status(0);
        return setup.request == GET_INTERFACE && wants(1) && to_interface() && reply_byte(0);
    case 0x01:
        return interface_request();
    case 0x82:
        return setup.request == GET_STATUS && wants(2) && endpoint_status();
    case 0x02:
        return (setup.request == SET_FEATURE || setup.request == CLEAR_FEATURE) && wants(0) &&
               endpoint_feature();
    case 0xA1:
        return setup.request == GET_MAX_LUN && wants(1) && to_interface() && reply_byte(0);
    case 0x21:
        if (setup.request != CLASS_RESET || !wants(0) || !to_interface())
            return 0;
        engine_class_reset();
        return 1;
    }
    return 0;
}

void standard_reset(void)
{
    configuration = 0;
    device_status = SELF_POWERED;
}

void standard_request(void)
{
    if (answer())
        control_accept();
    else
        control_stall();
}
