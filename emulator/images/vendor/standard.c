#include "standard.h"

#include "bulk.h"
#include "descriptors.h"
#include "usb.h"

enum { GET_STATUS = 0, CLEAR_FEATURE = 1, SET_FEATURE = 3, SET_ADDRESS = 5, GET_DESCRIPTOR = 6 };
enum { GET_CONFIGURATION = 8, SET_CONFIGURATION = 9, GET_INTERFACE = 10, SET_INTERFACE = 11 };
enum { SET_SEL = 48, SET_ISOCH_DELAY = 49 };
enum { ENDPOINT_HALT = 0, FUNCTION_SUSPEND = 0, U1_ENABLE = 48, U2_ENABLE = 49 };
enum { SELF_POWERED = 0x01 };

static u8 configuration;

void standard_reset(void)
{
    configuration = 0;
    bulk_stop();
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

static u8 is_endpoint(u8 address)
{
    return address == BULK_OUT || address == BULK_IN;
}

static void device_status(void)
{
    send_status(SELF_POWERED);
}

static void interface_status(void)
{
    if (setup.index_low)
        control_stall();
    else
        send_status(0);
}

static void endpoint_status(void)
{
    if ((setup.index_low & 0x7F) == 0)
        send_status(0);
    else if (is_endpoint(setup.index_low))
        send_status(bulk_halted(setup.index_low));
    else
        control_stall();
}

static void set_address(void)
{
    USB_ADDRESS = USB_ADDRESS_ENABLE | (setup.value_low & 0x7F);
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
    if (setup.value_low > 1) {
        control_stall();
        return;
    }
    configuration = setup.value_low;
    MSC_CONFIG = 0;
    bulk_stop();
    control_accept();
}

static void get_interface(void)
{
    if (configuration && setup.index_low == 0)
        send_byte(0);
    else
        control_stall();
}

static void set_interface(void)
{
    if (!configuration || setup.index_low || setup.value_low) {
        control_stall();
        return;
    }
    bulk_stop();
    control_accept();
}

static void endpoint_feature(void)
{
    if (setup.value_low != ENDPOINT_HALT || !is_endpoint(setup.index_low)) {
        control_stall();
        return;
    }
    if (setup.request == SET_FEATURE)
        bulk_halt(setup.index_low);
    else
        bulk_clear_halt(setup.index_low);
    control_accept();
}

/* Power management of a SuperSpeed link; the controller does it, we agree. */
static void device_feature(void)
{
    if (!usb_high_speed && (setup.value_low == U1_ENABLE || setup.value_low == U2_ENABLE))
        control_accept();
    else
        control_stall();
}

static void interface_feature(void)
{
    if (!usb_high_speed && setup.value_low == FUNCTION_SUSPEND)
        control_accept();
    else
        control_stall();
}

static void set_sel(void)
{
    control_receive(nothing);
}

const __code struct request standard_requests[] = {
    {DEVICE_TO_HOST | DEVICE, GET_STATUS, device_status},
    {DEVICE_TO_HOST | INTERFACE, GET_STATUS, interface_status},
    {DEVICE_TO_HOST | ENDPOINT, GET_STATUS, endpoint_status},
    {HOST_TO_DEVICE | DEVICE, CLEAR_FEATURE, device_feature},
    {HOST_TO_DEVICE | DEVICE, SET_FEATURE, device_feature},
    {HOST_TO_DEVICE | INTERFACE, CLEAR_FEATURE, interface_feature},
    {HOST_TO_DEVICE | INTERFACE, SET_FEATURE, interface_feature},
    {HOST_TO_DEVICE | ENDPOINT, CLEAR_FEATURE, endpoint_feature},
    {HOST_TO_DEVICE | ENDPOINT, SET_FEATURE, endpoint_feature},
    {HOST_TO_DEVICE | DEVICE, SET_ADDRESS, set_address},
    {DEVICE_TO_HOST | DEVICE, GET_DESCRIPTOR, get_descriptor},
    {DEVICE_TO_HOST | DEVICE, GET_CONFIGURATION, get_configuration},
    {HOST_TO_DEVICE | DEVICE, SET_CONFIGURATION, set_configuration},
    {DEVICE_TO_HOST | INTERFACE, GET_INTERFACE, get_interface},
    {HOST_TO_DEVICE | INTERFACE, SET_INTERFACE, set_interface},
    {HOST_TO_DEVICE | DEVICE, SET_SEL, set_sel},
    {HOST_TO_DEVICE | DEVICE, SET_ISOCH_DELAY, control_accept},
    {0, 0, 0},
};
