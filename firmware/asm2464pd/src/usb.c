#include "usb.h"

#include "bulk.h"
#include "control.h"
#include "lane_table.h"
#include "standard.h"
#include "table.h"

__bit usb_high_speed;

static void tune_lane(u16 lane)
{
    volatile __xdata u8 *byte;
    u8 kept, left;

    table = lane_updates;
    for (left = LANE_UPDATES; left; left--) {
        byte = XDATA(lane + table_next());
        kept = *byte & table_next();
        *byte = kept | table_next();
    }
}

void usb_start(void)
{
    tune_lane(USB_LANE_0);
    tune_lane(USB_LANE_1);
    USB_POWER_STATUS &= ~USB_POWER_STATUS_USB_PATH;
    INT_CONTROL = INT_CONTROL_GLOBAL;
    USB_CONFIG = 0xE0;
    USB_BULK_EVENT_ENABLE = 0xF0;
    USB_EP_EVENT_ENABLE = 0x00;
    USB_EP_MANAGEMENT = 0x00;
    USB_LINK_STATUS_MASK = 0x33;
    standard_reset();
}

u8 usb_is_full_speed(void)
{
    return (USB_LINK_SPEED & USB_LINK_SPEED_SPEED) == USB_LINK_SPEED_SPEED_FULL;
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
    if (events & USB_LINK_STATUS_SS_OK)
        usb_high_speed = 0;
    if (events & USB_LINK_STATUS_SS_FAIL) {
        usb_high_speed = 1;
        USB_MODE = 0;
        USB_PHY_CONTROL = USB_PHY_CONTROL_HIGH_SPEED;
    }
}

/* Level-triggered: an event that is left, or comes meanwhile, calls the handler again. So every source is
 * acknowledged, the mass-storage engine's too: a host can switch that on with E5. Packets come before
 * requests, as a request that is pending with a packet was sent after it. Main may have selected the PHY plane. */
void usb_interrupt(void) __interrupt(0)
{
    u8 plane = CPU_DPX;
    u8 sources;

    CPU_DPX = CPU_DPX_PLANE_XDATA;
    sources = USB_EVENTS;
    if (sources & USB_EVENTS_LINK_TRAINING)
        training_event();
    if (sources & USB_EVENTS_LINK)
        link_event();
    if (sources & USB_EVENTS_LINK_ALTERNATE)
        USB_LINK_ALTERNATE = USB_LINK_ALTERNATE;
    if (sources & USB_EVENTS_BULK)
        bulk_event();
    if (sources & USB_EVENTS_CONTROL)
        control_event();
    if (sources & USB_EVENTS_EP_COMPLETE)
        EP_COMPLETE = EP_COMPLETE;
    if (sources & USB_EVENTS_COMMAND)
        MSC_EVENT = MSC_EVENT;
    CPU_DPX = plane;
}
