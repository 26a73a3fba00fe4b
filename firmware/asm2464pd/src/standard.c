#include "standard.h"

#include "bulk.h"
#include "descriptors.h"
#include "usb.h"

enum { GET_STATUS = 0, CLEAR_FEATURE = 1, SET_FEATURE = 3, SET_ADDRESS = 5, GET_DESCRIPTOR = 6 };
enum { GET_CONFIGURATION = 8, SET_CONFIGURATION = 9, GET_INTERFACE = 10, SET_INTERFACE = 11 };
enum { SET_SEL = 48, SET_ISOCH_DELAY = 49, SEL_SIZE = 6 };
enum { ENDPOINT_HALT = 0, FUNCTION_SUSPEND = 0, U1_ENABLE = 48, U2_ENABLE = 49 };
/* Of the device's status. */
enum { SELF_POWERED = 0x01, U1_ENABLED = 0x04, U2_ENABLED = 0x08 };

static u8 configuration;
static u8 device_status;

static void configure(u8 value)
{
    configuration = value;
    device_status = SELF_POWERED;
    bulk_stop();
}

/* The controller has reset the address to 0, but set_address may have been running at that moment. */
void standard_reset(void)
{
    USB_ADDRESS &= USB_ADDRESS_ENABLE;
    control_reset();
    configure(0);
}

static void send_byte(u8 byte)
{
    EP0_BUFFER[0] = byte;
    control_send(1);
}

static void send_status(u8 status)
{
    EP0_BUFFER[0] = status;
    EP0_BUFFER[1] = 0;
    control_send(2);
}

static void nothing(void)
{
}

static u8 is_our_interface(void)
{
    return configuration && setup.index_low == 0;
}

static u8 is_our_endpoint(void)
{
    return configuration && setup.index_high == 0 &&
           (setup.index_low == BULK_OUT || setup.index_low == BULK_IN);
}

static u8 is_feature(u8 feature)
{
    return setup.value_low == feature && setup.value_high == 0;
}

static void get_device_status(void)
{
    send_status(device_status);
}

static void get_interface_status(void)
{
    if (is_our_interface())
        send_status(0);
    else
        control_stall();
}

static void get_endpoint_status(void)
{
    if ((setup.index_low & 0x7F) == 0)
        send_status(0);
    else if (is_our_endpoint())
        send_status(bulk_halted(setup.index_low));
    else
        control_stall();
}

static void set_address(void)
{
    if (setup.value_high || setup.value_low > 127) {
        control_stall();
        return;
    }
    USB_ADDRESS = USB_ADDRESS_ENABLE | setup.value_low;
    USB_ADDRESS_COMMIT = 0x02;
    control_accept();
}

static void get_descriptor(void)
{
    u8 length = descriptor_copy(setup.value_high, setup.value_low);

    if (length)
        control_send(length);
    else
        control_stall();
}

static void get_configuration(void)
{
    send_byte(configuration);
}

static void set_configuration(void)
{
    if (setup.value_low > 1 || setup.value_high) {
        control_stall();
        return;
    }
    MSC_CONFIG = 0;
    configure(setup.value_low);
    control_accept();
}

static void get_interface(void)
{
    if (is_our_interface())
        send_byte(0);
    else
        control_stall();
}

static void set_interface(void)
{
    if (!is_our_interface() || setup.value_low || setup.value_high) {
        control_stall();
        return;
    }
    bulk_stop();
    control_accept();
}

static void endpoint_feature(void)
{
    if (!is_feature(ENDPOINT_HALT) || !is_our_endpoint()) {
        control_stall();
        return;
    }
    if (setup.request == SET_FEATURE)
        bulk_halt(setup.index_low);
    else
        bulk_clear_halt(setup.index_low);
    control_accept();
}

/* Power management of a SuperSpeed link: the controller does it; we accept the request and store it. */
static void device_feature(void)
{
    u8 bit = 0;

    if (is_feature(U1_ENABLE))
        bit = U1_ENABLED;
    else if (is_feature(U2_ENABLE))
        bit = U2_ENABLED;
    if (usb_high_speed || !configuration || !bit) {
        control_stall();
        return;
    }
    if (setup.request == SET_FEATURE)
        device_status |= bit;
    else
        device_status &= ~bit;
    control_accept();
}

static void interface_feature(void)
{
    if (!usb_high_speed && is_our_interface() && is_feature(FUNCTION_SUSPEND))
        control_accept();
    else
        control_stall();
}

static void set_sel(void)
{
    if (usb_high_speed)
        control_stall();
    else
        control_receive(nothing);
}

static void set_isoch_delay(void)
{
    if (usb_high_speed)
        control_stall();
    else
        control_accept();
}

const __code struct request standard_requests[] = {
    {DEVICE_TO_HOST | DEVICE, GET_STATUS, 2, get_device_status},
    {DEVICE_TO_HOST | INTERFACE, GET_STATUS, 2, get_interface_status},
    {DEVICE_TO_HOST | ENDPOINT, GET_STATUS, 2, get_endpoint_status},
    {HOST_TO_DEVICE | DEVICE, CLEAR_FEATURE, 0, device_feature},
    {HOST_TO_DEVICE | DEVICE, SET_FEATURE, 0, device_feature},
    {HOST_TO_DEVICE | INTERFACE, CLEAR_FEATURE, 0, interface_feature},
    {HOST_TO_DEVICE | INTERFACE, SET_FEATURE, 0, interface_feature},
    {HOST_TO_DEVICE | ENDPOINT, CLEAR_FEATURE, 0, endpoint_feature},
    {HOST_TO_DEVICE | ENDPOINT, SET_FEATURE, 0, endpoint_feature},
    {HOST_TO_DEVICE | DEVICE, SET_ADDRESS, 0, set_address},
    {DEVICE_TO_HOST | DEVICE, GET_DESCRIPTOR, ANY_LENGTH, get_descriptor},
    {DEVICE_TO_HOST | DEVICE, GET_CONFIGURATION, 1, get_configuration},
    {HOST_TO_DEVICE | DEVICE, SET_CONFIGURATION, 0, set_configuration},
    {DEVICE_TO_HOST | INTERFACE, GET_INTERFACE, 1, get_interface},
    {HOST_TO_DEVICE | INTERFACE, SET_INTERFACE, 0, set_interface},
    {HOST_TO_DEVICE | DEVICE, SET_SEL, SEL_SIZE, set_sel},
    {HOST_TO_DEVICE | DEVICE, SET_ISOCH_DELAY, 0, set_isoch_delay},
    {0, 0, 0, 0},
};
