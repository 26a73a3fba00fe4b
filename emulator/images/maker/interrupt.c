#include "interrupt.h"

#include "chip.h"
#include "control.h"
#include "engine.h"
#include "link.h"

/* The bits of USB_EVENTS, in the order in which the maker's handler looks at them. The register is read again
 * each time: it shows what is pending now. */
static void usb_events(void)
{
    if (USB_EVENTS & 0x20)
        engine_status_sent();
    if (USB_EVENTS & 0x08)
        link_reset_event();
    if (USB_EVENTS & 0x01)
        link_event();
    if (USB_EVENTS & 0x02)
        control_event();
    if (USB_EVENTS & 0x04)
        engine_bulk_event();
    if (USB_EVENTS & 0x40)
        engine_command();
    if (USB_EVENTS & 0x10)
        link_status_event();
}

void interrupt_0(void) __interrupt(0)
{
    if (INT_USB & 0x01)
        usb_events();
    /* Nothing here needs these two; the maker's handler looks at them whatever the cause was. */
    (void)(INT_SYSTEM & 0x20);
    (void)(INT_USB & 0x04);
}

static void clear_event(volatile __xdata u8 *control)
{
    if (*control & 0x02)
        *control = 0x02;
}

void interrupt_1(void) __interrupt(2)
{
    (void)INT_SYSTEM;
    if (CPU_STATUS & 0x04)
        CPU_STATUS = 0x04;
    (void)INT_PCIE;
    clear_event(&TIMER3_CONTROL);
    clear_event(&EVENT_CC81);
    clear_event(&EVENT_CC91);
    clear_event(&EVENT_CCD9);
}
