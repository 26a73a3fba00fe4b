#include "link.h"

#include "control.h"
#include "engine.h"
#include "queues.h"
#include "timer.h"

/* -- set-up ---------------------------------------------------------------------------------------------- */

/* Row 1: either of two bits, without a time-out. The maker's firmware sleeps before, in several modes. */
void link_wait_for_phy(void)
{
    timer_sleep(2, 0xC7);
    timer_sleep(3, 0x14);
    timer_sleep(4, 0x0A);
    timer_sleep(5, 0x0A);
    while (!(PHY_READY & 0x30))
        ;
}

static const __code u16 touched[] = {
    0xCC32, 0xCC3F, 0xC6A8, 0xE324, 0xE717, 0xCC3E, 0xE716, 0xCC39, 0xCC3A, 0xCC38, 0xCA06, 0xCC37, 0xCA70,
    0xE780, 0xE712, 0xC233, 0xE7E3, 0xB402, 0xB432, 0xB404, 0xE76C, 0xE774, 0xE77C, 0xB434, 0xB436, 0xC65B,
    0xC62D, 0xE795, 0xCA2E, 0xCC35, 0xCA60, 0x92C6, 0x92C7, 0x9201, 0x92C1, 0x920C, 0xC20C, 0xC208, 0x92C5,
    0x9241, 0xC21B, 0xC202, 0xC20B, 0xC22F, 0xE741, 0xE742, 0xCC43, 0xC21F, 0xC2A8, 0xC328, 0xC21D, 0xC2CD,
    0xC34D, 0xC8FF, 0xC65A, 0xCD30, 0xCD31, 0xCD32, 0xCD33, 0xCC2A, 0xCC2C, 0xCC2D, 0xC655, 0xC620,
    0x9310, 0x9311, 0x9312, 0x9313, 0x9314, 0x9315, 0x9316, 0x9317, 0x9318, 0x9319, 0x931A, 0x931B, 0x931C,
    0x931D, 0x931E, 0x931F, 0x9320, 0x9321, 0x9322, 0x9323,
};
static const __code u16 touched_in_phy[] = {
    0x2805, 0x0000, 0x78AF, 0x79AF, 0x7AAF, 0x7BAF, 0x7041, 0x1507, 0x1262, 0x28ED, 0x28CE, 0x281C, 0x281D,
    0x2849, 0x286A, 0x286B, 0x286C, 0x286D, 0x7827, 0x7927, 0x7A27, 0x7B27,
};

static void touch(const __code u16 *addresses, u8 count, u8 plane)
{
    u16 address;
    u8 value;

    for (; count; count--) {
        address = *addresses++;
        DPX = plane;
        value = XDATA(address);
        XDATA(address) = value;
        DPX = 0;
    }
}

void link_touch(void)
{
    touch(touched, sizeof touched / sizeof *touched, 0);
    touch(touched_in_phy, sizeof touched_in_phy / sizeof *touched_in_phy, 1);
}

void link_start(void)
{
    control_reset();
    USB_CONFIG = 0xE0;
    BULK_EVENT_ENABLE = 0xF0;
    EP_EVENT_ENABLE = 0x00;
    EP_MANAGEMENT = 0x00;
    /* Clear what is pending; each mask is the complement of what the handler looks at. */
    STATUS_9300 = 0x0C;
    STATUS_9301 = 0xC0;
    STATUS_9302 = 0xBF;
    MASK_9303 = 0x33;
    MASK_9304 = 0x3F;
    MASK_9305 = 0x40;
    USB_MODE |= 0x01;
    /* Rows 4 and 3: the pulse comes last; what it starts may take 200 ms, and need not succeed. The power bit
     * POWER_92C2.6, which the open firmware clears first, stays as it is. */
    PHY_CONTROL |= 0x01;
    PHY_CONTROL &= ~0x01;
    timer_start(HALF_MILLISECOND, 0x18F);
    while (!(PHY_COMPLETE & 0x10) && !timer_expired())
        ;
}

/* -- events ---------------------------------------------------------------------------------------------- */

/* Of the USB state: no transfer, no configuration, empty queues. The controller resets the address. */
static void state_reset(void)
{
    control_reset();
    engine_abort();
    queues_clear();
}

static void use_usb_2(void)
{
    USB_MODE &= ~0x01;
    PHY_E710 = (PHY_E710 & ~0x1F) | 0x1F;
    PHY_CONTROL &= ~0x02;
}

static void super_speed_is_up(void)
{
    PHY_CONTROL |= 0x02; /* row 6: a note of firmware's */
    USB_MODE |= 0x01;
    PHY_E710 = (PHY_E710 & ~0x1F) | 0x04;
    PHY_CC3B &= ~0x02;
    POWER_92E1 |= 0x40; /* the two always come together */
    POWER_92C2 &= ~0x40;
}

static void super_speed_failed(void)
{
    STATUS_9300 = 0x04;
    POWER_92C2 |= 0x40;
    POWER_92E1 = 0x10;
    PHY_CC3B |= 0x02;
}

/* Row 5: the state of the link, one bit at a time; other values mean that it is still training. */
static void train(void)
{
    for (;;) {
        switch (LINK_STATE) {
        case 0x01:
        case 0x08:
        case 0x20:
        case 0x40:
            super_speed_is_up();
            return;
        case 0x02:
        case 0x80:
            super_speed_failed();
            return;
        case 0x04:
            if ((STATUS_9301 & 0x40) || (LINK_EVENTS & 0x08))
                return;
        }
    }
}

/* Bits 3, 0, 1, 2; the reset is acknowledged after it is handled. */
void link_event(void)
{
    if (LINK_EVENTS & 0x08)
        LINK_EVENTS = 0x08;
    if (LINK_EVENTS & 0x01) {
        LINK_EVENTS = 0x01;
        state_reset();
        if (PHY_CONTROL & 0x02) {
            PHY_CONTROL &= ~0x02; /* the link was up, and is lost */
        } else {
            train();
            engine_start(); /* row 12: here, and not at SET_CONFIGURATION */
        }
    }
    if (LINK_EVENTS & 0x02)
        LINK_EVENTS = 0x02;
    if (LINK_EVENTS & 0x04) {
        state_reset();
        LINK_EVENTS = 0x04;
    }
}

void link_reset_event(void)
{
    if (STATUS_9301 & 0x40) {
        STATUS_9301 = 0x40;
        if (!(POWER_92C2 & 0x40))
            state_reset();
    }
    if (STATUS_9301 & 0x80) {
        STATUS_9301 = 0x80;
        POWER_92E0 |= 0x02;
        state_reset();
    }
    if (STATUS_9302 & 0x80)
        STATUS_9302 = 0x80;
}

static const __code u8 in_order[] = {0x08, 0x10, 0x20, 0x01, 0x02, 0x04};

void link_status_event(void)
{
    u8 i;

    for (i = 0; i < sizeof in_order; i++)
        if (STATUS_9302 & in_order[i])
            STATUS_9302 = in_order[i];
    if (STATUS_9300 & 0x04) {
        STATUS_9300 = 0x04;
        use_usb_2();
    }
    if (STATUS_9300 & 0x08)
        STATUS_9300 = 0x08;
    /* The maker's firmware leaves the masked bits alone. Whether the masks keep them from causing interrupts
     * is disputed; cleared, they do no harm either way. */
    STATUS_9300 = 0x33;
}
