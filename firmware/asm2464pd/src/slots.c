#include "slots.h"

enum { SECTOR = 512, SLOTS = 32 };
#define SECTORS_OF_A_SLOT ((u8)32)

/* A bus reset disarms the engine, and may not have been handled yet: an engine armed after it would take the
 * packets of the host's next transfers. */
#define RESET_PENDS (USB_LINK_EVENTS & USB_LINK_EVENTS_RESET)

/* The registers in the order that is known to work; the last write arms. A reset that comes within the few
 * clocks before it leaves the engine armed: that arming it again for 0 sectors helps is a guess. */
u8 slots_arm(u8 first, u8 slots, u16 sectors)
{
    u8 control = DMA_CONTROL_START | DMA_CONTROL_TO_SRAM;

    if (sectors & SLOTS_TO_HOST) {
        sectors &= ~SLOTS_TO_HOST;
        control = DMA_CONTROL_START;
    }
    if (first >= SLOTS || slots > (u8)(SLOTS - first) || !sectors ||
        sectors > (u16)(slots * SECTORS_OF_A_SLOT))
        return 0;
    DMA_RELEASE = 0;
    DMA_SECTOR_SIZE_HIGH = HIGH(SECTOR);
    DMA_SECTOR_SIZE_LOW = LOW(SECTOR);
    DMA_SLOT_FIRST = DMA_SLOT_FIRST_VALID | first;
    DMA_SLOT_END = first + slots;
    DMA_SECTORS_HIGH = HIGH(sectors);
    DMA_SECTORS_LOW = LOW(sectors);
    DMA_CONTROL = control;
    if (RESET_PENDS)
        return 0;
    DMA_ARM = first;
    if (RESET_PENDS) {
        DMA_SECTORS_HIGH = 0;
        DMA_SECTORS_LOW = 0;
        DMA_ARM = first;
    }
    return 1;
}
