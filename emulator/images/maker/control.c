#include "control.h"

#include "standard.h"

__xdata struct setup setup;

/* Row 8: data that waits for the host to ask for it. */
static u8 reply_length;
static u8 reply_waits;

void control_reset(void)
{
    reply_waits = 0;
    standard_reset();
}

void control_send(u8 length)
{
    if (setup.length_high == 0 && setup.length_low < length)
        length = setup.length_low;
    reply_length = length;
    reply_waits = 1;
}

void control_accept(void)
{
}

void control_stall(void)
{
    EP0_COMMAND = STALL;
}

/* Row 9: the event is acknowledged before the packet is copied; a newer SETUP that comes meanwhile is copied
 * instead. */
static void setup_event(void)
{
    volatile __xdata u8 *from;
    __xdata u8 *to;
    u8 i;

    do {
        EP0_PHASE = SETUP_IS_HERE;
        from = SETUP_PACKET;
        to = (__xdata u8 *)&setup;
        for (i = 0; i < sizeof setup; i++)
            *to++ = *from++;
    } while (EP0_PHASE & SETUP_IS_HERE);
    USB_CONFIG &= ~0x02; /* row 10 */
    reply_waits = 0;
    standard_request();
}

/* Row 8: the data of an IN transfer; or, at High Speed, the empty packet that ends an OUT transfer. */
static void send(void)
{
    u8 length = reply_waits ? reply_length : 0;

    reply_waits = 0;
    EP0_LENGTH_HIGH = 0;
    EP0_LENGTH_LOW = length;
    EP0_COMMAND = SEND;
}

/* Row 9: the phases in this order, each acknowledged after it is handled. */
void control_event(void)
{
    if ((EP0_PHASE & SETUP_IS_HERE) && !(EP0_PHASE & DATA_OUT))
        setup_event();
    if ((EP0_PHASE & STATUS_OUT) && !(USB_CONFIG & 0x02)) {
        EP0_COMMAND = ACCEPT_STATUS;
        USB_CONFIG |= 0x02; /* row 10 */
        EP0_PHASE = STATUS_OUT;
    }
    if (EP0_PHASE & DATA_OUT)
        EP0_PHASE = DATA_OUT; /* of SET_SEL alone; firmware has no use for the latencies */
    if (EP0_PHASE & IN_WANTED) {
        send();
        EP0_PHASE = IN_WANTED;
    }
    if (EP0_PHASE & STATUS_IN) {
        EP0_COMMAND = FINISH_STATUS;
        EP0_PHASE = STATUS_IN;
    }
}
