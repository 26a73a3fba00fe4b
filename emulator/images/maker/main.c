/* A test image in the maker's style: a mass-storage bridge without a disk, that boots through the registers
 * of the ASM2464PD in the order in which the maker's own firmware does.
 *
 * The open firmware and ours know one way through the chip; this is the other. It is written from the facts
 * below, learnt by running the maker's firmware on the emulator, and contains no code of the maker's. It waits
 * where that firmware waits, without a time-out. The other files name the rows that they exercise.
 *
 *    1  C6B3         the PHY is ready: [4] or [5] is set
 *    2  C8B2 - C8B8  fill by DMA: destination, length - 1, channel, byte, start; C8D6, C8D8 choose a bank.
 *                    The queue memories, at boot and at each reset of the USB state
 *    3  E318         the PHY has started; timer 0 is the limit
 *    4  91C0 [0]     set and cleared: starts the SuperSpeed PHY. The power bit 92C2.6 is not cleared before
 *    5  92FB         state of the link, polled in the TRAINING interrupt
 *    6  91C0 [1]     set and cleared by firmware: the link is up
 *    7  9100         speed: 1 High Speed, 2 SuperSpeed
 *    8  9091 [3]     the host asks for IN data of EP0; it is sent then, and not at SETUP
 *    9  9091         served in the order of its bits, SETUP acknowledged first, the others last
 *   10  9002 [1]     firmware's note that the status stage is answered; (11) 9002 reads 20 else
 *   12  C42C         arms the storage engine, with 900B = 0, after resets by 900B and C42A; it stays armed
 *                    over a bus reset, so that SET_CONFIGURATION has nothing to do
 *   13  9119         length of the command wrapper, 31
 *   14  CE88, CE89   at a command: 0, then poll until it is there; CE86 [4] is an error
 *   15  90A1         sends the status wrapper at D800; (16) after 9096, 90E3 the engine waits for a command
 *   17  9093, 9094   data stages, a packet at a time: 7000 for OUT, 8000 for IN
 *   18  9006         halts of EP 0x81 [0] and EP 0x02 [7]; 905F, 905D of two more
 *   19  C805         the flash controller's buffer: 7000 or 8000. (20) CA81 stays clear
 *   21  C8AC         bytes of the flash address; the rest is kept
 *   22               E2 and E3: part 50 is flash from 0x100, part D0 from 0x10000; read in pieces of 0x400
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
    IE = 0; /* a restart by E8 may leave these two as they were */
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
