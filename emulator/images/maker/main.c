/* A test image in the maker's style: a mass-storage bridge without a disk, that boots through the registers of
 * the ASM2464PD in the order in which the maker's own firmware does.
 *
 * The open firmware and ours know one way through the chip; this is the other. It is written from a table of
 * facts, and contains no code of the maker's. It waits where the maker's firmware waits, without a time-out.
 *
 *   PHY ready, queues filled by DMA (link.c, queues.c)      rows 1, 2
 *   configuration block out of the flash (flash.c)          rows 19 to 21
 *   USB set-up, start pulse, interrupts (link.c)            rows 3, 4
 *   training: link state, engine armed (link.c, engine.c)   rows 5, 6, 12
 *   EP0 (control.c, standard.c)                             rows 7 to 11
 *   commands (transport.c, scsi.c, vendor.c)                rows 13 to 18, 22
 */
#include "chip.h"
#include "engine.h"
#include "flash.h"
#include "interrupt.h"
#include "link.h"
#include "queues.h"
#include "transport.h"

static void say(const __code char *text)
{
    for (; *text; text++)
        UART_DATA = *text;
}

void main(void)
{
    IE = 0; /* after a restart by E8 too */
    DPX = 0;
    UART_LINE &= ~0x38; /* no parity */
    say("towline maker's style\n");
    link_wait_for_phy();
    queues_clear();
    link_touch();
    flash_start();
    link_start();
    INT_CONTROL |= 0x01;
    EX1 = 1;
    EX0 = 1;
    EA = 1;
    for (;;)
        transport_run();
}
