/* Firmware for the ASM2464PD: PCIe for a USB host, by single requests, streams, slot DMA and command lists.
 *
 * The interrupt handler (usb.h) answers EP0 and passes packets on; it never waits. Work that waits for PCIe is
 * done here, in turn: the packets of streams (pio.h), the job of a request (job.h), command lists (list.h).
 * Read chip.h first: it says which functions main and the handler may call.
 */
#include "chip.h"
#include "job.h"
#include "list.h"
#include "pcie.h"
#include "pio.h"
#include "serial.h"
#include "supply.h"
#include "timer.h"
#include "uart.h"
#include "usb.h"

static void start(void)
{
    uart_start();
    uart_print("towline firmware\n");
    timer_start();
    serial_read();
    pcie_tune();
    /* The PCIe link first: a host that sees the device may use it at once. */
    uart_print(pcie_power_on() ? "pcie: link up\n" : "pcie: no link\n");
    usb_start();
    CPU_IE_EX0_BIT = 1;
    CPU_IE_EA_BIT = 1;
}

void main(void)
{
    start();
    for (;;) {
        job_begin();
        pio_run();
        job_run();
        job_begin();
        list_run();
        pcie_watch();
        /* Looked at here, for a call that does nothing would be part of each request's time. */
        if (supply_busy || TIMER2_CSR & TIMER0_CSR_EXPIRED)
            timer_poll();
    }
}
