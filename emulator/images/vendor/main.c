/* A vendor-class test image for the ASM2464PD.
 *
 * It answers the requests that hosts of the open firmware use (vendor.h), and some that exist to test a USB
 * host or its model (selftest.h). All work is done in the interrupt handler, one event a step. Nothing waits
 * there without a bound, but for the chip's own timer.
 */
#include "chip.h"
#include "pcie.h"
#include "uart.h"
#include "usb.h"

void main(void)
{
    uart_start();
    uart_print("towline test vendor image\n");
    pcie_tune();
    /* The PCIe link first: a host that sees the device may use it at once. */
    uart_print(pcie_power_on() ? "pcie: link up\n" : "pcie: no link\n");
    usb_start();
    uart_print("usb: started\n");
    CPU_IE_EX0_BIT = 1;
    CPU_IE_EA_BIT = 1;
    for (;;)
        ;
}
