#include "queues.h"

#include "chip.h"

/* Row 2: fill by DMA. The start bit clears itself. */
static void fill(u16 address, u16 length)
{
    length--;
    FILL_TO_HIGH = HIGH(address);
    FILL_TO_LOW = LOW(address);
    FILL_LAST_HIGH = HIGH(length);
    FILL_LAST_LOW = LOW(length);
    FILL_BYTE = 0;
    FILL_CHANNEL |= 0x80;
    FILL_CHANNEL |= 0x04;
    FILL_CHANNEL &= ~0x01;
    FILL_CHANNEL &= ~0x02;
    FILL_START = 0x01;
    while (FILL_START & 0x01)
        ;
    FILL_CHANNEL &= ~0x84;
}

/* Row 2: each is filled twice, with a bank bit set and with it clear. */
void queues_clear(void)
{
    FILL_BANK_SUBMISSION |= 0x02;
    fill(0xA000, 0x1000);
    FILL_BANK_SUBMISSION &= ~0x02;
    fill(0xA000, 0x1000);
    FILL_BANK_SUBMISSION |= 0x02;
    fill(0xB000, 0x200);
    FILL_BANK_SUBMISSION &= ~0x02;
    fill(0xB000, 0x200);
    FILL_BANK_COMPLETION |= 0x02;
    fill(0xB800, 0x400);
    FILL_BANK_COMPLETION &= ~0x02;
    fill(0xB800, 0x400);
    FILL_BANK_COMPLETION |= 0x02;
    fill(0xBC00, 0x80);
    FILL_BANK_COMPLETION &= ~0x02;
    fill(0xBC00, 0x80);
}
