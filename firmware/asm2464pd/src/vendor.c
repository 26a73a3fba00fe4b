#include "vendor.h"

#include "bulk.h"
#include "job.h"
#include "list.h"
#include "pcie.h"
#include "pio.h"
#include "slots.h"
#include "supply.h"
#include "timer.h"
#include "usb.h"

/* Identity of the build: the Makefile gives a digest of the sources. */
#ifndef BUILD_ID
#define BUILD_ID 0ul
#endif

enum { ANSWER_SUPER_SPEED = EP0_BUFFER_SIZE, ANSWER_HIGH_SPEED = 64 };

static __bit power_on;

static u16 value(void)
{
    return setup.value_low | (u16)setup.value_high << 8;
}

/* With DPX set every MOVX goes to the other plane: its byte is kept in a register. */
static void read_memory(void)
{
    u16 limit = usb_high_speed ? ANSWER_HIGH_SPEED : ANSWER_SUPER_SPEED;
    u16 length = setup.length < limit ? setup.length : limit;
    volatile __xdata u8 *from = XDATA(value());
    volatile __xdata u8 *to = EP0_BUFFER;
    volatile __xdata u8 *end = EP0_BUFFER + length;
    u8 byte;

    if (setup.index_high > CPU_DPX_PLANE) {
        control_stall();
        return;
    }
    while (to != end) {
        CPU_DPX = setup.index_high;
        byte = *from++;
        CPU_DPX = CPU_DPX_PLANE_XDATA;
        *to++ = byte;
    }
    control_send(length);
}

static void write_memory(void)
{
    if (setup.index_high > CPU_DPX_PLANE) {
        control_stall();
        return;
    }
    CPU_DPX = setup.index_high;
    *XDATA(value()) = setup.index_low;
    CPU_DPX = CPU_DPX_PLANE_XDATA;
    control_accept();
}

/* While the slot DMA takes a transfer to the SRAM it must not be armed again; but no register says whether it
 * does. Main counts down the slots that may still have to be filled if the host's data comes at the link's
 * rate, and a request that comes earlier is answered later. The data of a slower host may come too late. */
static volatile u8 slots_left;

/* What the link needs for a slot. At SuperSpeed a host gets the time of one more for its first packet. */
enum { SLOT_US = 22, SLOT_US_HIGH_SPEED = 408 };

/* The transfer is open. */
static void arm(void)
{
    u8 slots = setup.index_high;

    if (!slots)
        slots = 1;
    if (!slots_arm(setup.index_low, slots, value())) {
        control_stall();
        return;
    }
    control_finish();
    if (setup.value_high & HIGH(SLOTS_TO_HOST))
        return;
    if (!usb_high_speed)
        slots++;
    slots_left = slots;
}

/* The job; other work ends it. */
static void wait_for_engine(void)
{
    u16 microseconds;

    while (!GIVEN_UP) {
        if (slots_left) {
            microseconds = SLOT_US;
            if (usb_high_speed)
                microseconds = SLOT_US_HIGH_SPEED;
            wait_us(microseconds);
            timer_poll();
            slots_left--;
            continue;
        }
        HOLD;
        if (control_is_open())
            arm();
        RELEASE;
        if (!slots_left)
            return;
    }
}

static void slot_dma(void)
{
    list_close();
    control_leave_open();
    if (!slots_left)
        arm();
    if (slots_left)
        job_post(wait_for_engine);
}

/* The job of a power request. Answered when it is done: the host waits up to 10 s for that. */
static void switch_power(void)
{
    if (power_on)
        pcie_power_on();
    else
        pcie_power_off();
    HOLD;
    if (control_is_open())
        control_finish();
    RELEASE;
}

static void power(void)
{
    list_close();
    power_on = setup.value_low & REQUEST_PCIE_POWER_VALUE_ON;
    job_post(switch_power);
    control_leave_open();
}

static void list(void)
{
    if (setup.value_low & (u8)~REQUEST_LIST_VALUE_OPEN || setup.value_high) {
        control_stall();
        return;
    }
    bulk_release();
    if (setup.value_low)
        list_open(setup.index_low | (u16)setup.index_high << 8);
    control_accept();
}

#define LE16(word) LOW(word), HIGH(word)

/* The part of INFO that does not change; what it has zeros for is filled in, and so is the rest. */
static const __code u8 fresh_info[INFO_BUILD_OFFSET + 4] = {
    [INFO_API_LEVEL_OFFSET] = LE16(API_LEVEL),
    [INFO_LIST_BYTES_OFFSET] = LE16(LIST_BYTES),
    [INFO_RESULT_BYTES_OFFSET] = LE16(RESULT_BYTES),
    [INFO_BUILD_OFFSET] = LE16((u16)BUILD_ID), LE16((u16)(BUILD_ID >> 16)),
};

/* Numbers in memory have the layout of INFO, and struct list_failure that of its end. */
static void info(void)
{
    u8 i, rate;

    for (i = 0; i < sizeof fresh_info; i++)
        EP0_BUFFER[i] = fresh_info[i];
    EP0_BUFFER[INFO_LTSSM_OFFSET] = PCIE_LTSSM;
    CPU_DPX = CPU_DPX_PLANE_PHY_AND_PCIE_SWITCH_REGISTERS;
    rate = *XDATA(PCIE_LINK_RATE_ADDRESS);
    CPU_DPX = CPU_DPX_PLANE_XDATA;
    EP0_BUFFER[INFO_LINK_RATE_OFFSET] = rate;
    for (i = 0; i < sizeof uptime; i++)
        EP0_BUFFER[(u8)(INFO_UPTIME_OFFSET + i)] = ((__idata u8 *)&uptime)[i];
    EP0_BUFFER[INFO_LINKS_LOST_OFFSET] = LOW(links_lost);
    EP0_BUFFER[INFO_LINKS_LOST_OFFSET + 1] = HIGH(links_lost);
    EP0_BUFFER[INFO_SEQUENCE_OFFSET] = LOW(list_sequence);
    EP0_BUFFER[INFO_SEQUENCE_OFFSET + 1] = HIGH(list_sequence);
    for (i = 0; i < sizeof list_failure; i++)
        EP0_BUFFER[(u8)(INFO_CAUSE_OFFSET + i)] = ((const __xdata u8 *)&list_failure)[i];
    control_send(INFO_SIZE);
}

const __code struct request vendor_requests[] = {
    {REQUEST_XDATA_READ_TYPE, REQUEST_XDATA_READ, ANY_LENGTH, read_memory},
    {REQUEST_XDATA_WRITE_TYPE, REQUEST_XDATA_WRITE, 0, write_memory},
    {REQUEST_TLP_START_TYPE, REQUEST_TLP_START, TLP_REQUEST_SIZE, pio_request},
    {REQUEST_TLP_STATUS_TYPE, REQUEST_TLP_STATUS, TLP_RESULT_SIZE, pio_status},
    {REQUEST_SRAM_DMA_TYPE, REQUEST_SRAM_DMA, 0, slot_dma},
    {REQUEST_PCIE_POWER_TYPE, REQUEST_PCIE_POWER, 0, power},
    {REQUEST_LIST_TYPE, REQUEST_LIST, 0, list},
    {REQUEST_INFO_TYPE, REQUEST_INFO, ANY_LENGTH, info},
    {REQUEST_SUPPLY_TYPE, REQUEST_SUPPLY, ANY_LENGTH, supply_request},
    {0, 0, 0, 0},
};
