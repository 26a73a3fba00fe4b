#include "usb.h"

#include "bulk.h"
#include "control.h"
#include "lane_table.h"
#include "standard.h"

u8 usb_high_speed;

static void tune_lane(u16 lane)
{
    u8 i;
    volatile __xdata u8 *byte;

    for (i = 0; i < sizeof lane_updates / sizeof lane_updates[0]; i++) {
        byte = XDATA(lane + lane_updates[i].offset);
        *byte = (*byte & lane_updates[i].keep) | lane_updates[i].put;
    }
}

void usb_start(void)
{
    u8 i;

    usb_high_speed = 0;
    for (i = 0; i < sizeof usb_lanes / sizeof usb_lanes[0]; i++)
        tune_lane(usb_lanes[i]);
    USB_POWER_STATUS &= ~USB_POWER_STATUS_USB_PATH;
    INT_CONTROL = INT_CONTROL_GLOBAL;
    USB_CONFIG = 0xE0;
    USB_BULK_EVENT_ENABLE = 0xF0;
    USB_EP_EVENT_ENABLE = 0x00;
    USB_EP_MANAGEMENT = 0x00;
    USB_LINK_CONFIG = 0x33;
    standard_reset();
}

static void training_event(void)
{
    u8 events = USB_LINK_EVENTS;

    USB_LINK_EVENTS = events;
    if (events & USB_LINK_EVENTS_RESET)
        standard_reset();
}

static void link_event(void)
{
    u8 events = USB_LINK_STATUS;

    USB_LINK_STATUS = events;
    if (events & USB_LINK_STATUS_SS_FAIL) {
        usb_high_speed = 1;
        USB_MODE = 0;
        USB_PHY_CONTROL = USB_PHY_CONTROL_HIGH_SPEED;
    }
}

/* Level-triggered: what is left over, or comes in meanwhile, brings us back. So every source is acknowledged,
 * the mass-storage engine's too: a host can switch that on with E5. */
void usb_interrupt(void) __interrupt(0)
{
    u8 sources = USB_EVENTS;

    if (sources & USB_EVENTS_LINK_TRAINING)
        training_event();
    if (sources & USB_EVENTS_LINK)
        link_event();
    if (sources & USB_EVENTS_LINK_ALTERNATE)
        USB_LINK_ALTERNATE = USB_LINK_ALTERNATE;
    if (sources & USB_EVENTS_CONTROL)
        control_event();
    if (sources & USB_EVENTS_BULK)
        bulk_event();
    if (sources & USB_EVENTS_EP_COMPLETE)
        EP_COMPLETE = EP_COMPLETE;
    if (sources & USB_EVENTS_COMMAND)
        MSC_EVENT = MSC_EVENT;
}
