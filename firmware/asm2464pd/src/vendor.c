#include "vendor.h"

#include "bulk.h"
#include "job.h"
#include "list.h"
#include "pcie.h"
#include "pio.h"
#include "slots.h"
#include "timer.h"
#include "usb.h"

/* Identity of the build: the Makefile gives a digest of the sources. */
#ifndef BUILD_ID
#define BUILD_ID 0ul
#endif

enum { ANSWER_SUPER_SPEED = EP0_BUFFER_SIZE, ANSWER_HIGH_SPEED = 4 };

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
 * does. Main counts down the sectors that it may still have to take from a host whose data comes at the link's
 * rate, and a request that comes earlier is answered later. A slower host's may come too early. */
static __bit engine_runs;
static u16 rounds_left;

/* A round of main's loop takes 67 clocks, a sector 84 at SuperSpeed; at High Speed 1180 and 1463. A host needs
 * some time from the answer to its first packet. */
enum { POLLS_HIGH_SPEED = 38, ROUNDS_OF_HOST = 16 };
#define ROUNDS(sectors) ((sectors) + ((sectors) >> 2) + ROUNDS_OF_HOST)

static u8 arm(void)
{
    u16 sectors = value();

    if (!slots_arm(setup.index_low, setup.index_high ? setup.index_high : 1, sectors))
        return 0;
    if (!(sectors & SLOTS_TO_HOST)) {
        engine_runs = 1;
        rounds_left = ROUNDS(sectors);
    }
    return 1;
}

/* The job. Other work ends it, and then nothing is known of the engine; a newer request of this kind does not. */
static void wait_for_engine(void)
{
    u8 polls;

    do {
        for (; rounds_left && !GIVEN_UP; rounds_left--) {
            polls = usb_high_speed ? POLLS_HIGH_SPEED : 1;
            do
                timer_poll();
            while (--polls);
        }
        HOLD;
        if (!GIVEN_UP) {
            engine_runs = 0;
            if (control_is_open()) {
                if (arm())
                    control_finish();
                else
                    control_stall();
            }
        } else if (setup.request != REQUEST_SRAM_DMA) {
            engine_runs = 0;
        }
        RELEASE;
    } while (engine_runs && !GIVEN_UP);
}

static void slot_dma(void)
{
    list_close();
    if (engine_runs)
        control_leave_open();
    else if (arm())
        control_accept();
    else
        control_stall();
    if (engine_runs)
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

/* INFO at start. */
static const __code u8 fresh_info[INFO_SIZE] = {
    [INFO_API_LEVEL_OFFSET] = LE16(API_LEVEL),
    [INFO_LIST_BYTES_OFFSET] = LE16(LIST_BYTES),
    [INFO_RESULT_BYTES_OFFSET] = LE16(RESULT_BYTES),
    [INFO_BUILD_OFFSET] = LE16((u16)BUILD_ID), LE16((u16)(BUILD_ID >> 16)),
};

static u8 link_rate(void)
{
    u8 rate;

    CPU_DPX = CPU_DPX_PLANE_PHY_AND_PCIE_SWITCH_REGISTERS;
    rate = *XDATA(PCIE_LINK_RATE_ADDRESS);
    CPU_DPX = CPU_DPX_PLANE_XDATA;
    return rate;
}

/* Numbers in memory have the layout of INFO, and struct list_failure that of its end. */
static void info(void)
{
    u8 i;

    for (i = 0; i < INFO_SIZE; i++)
        EP0_BUFFER[i] = fresh_info[i];
    EP0_BUFFER[INFO_LTSSM_OFFSET] = PCIE_LTSSM;
    EP0_BUFFER[INFO_LINK_RATE_OFFSET] = link_rate();
    for (i = 0; i < sizeof uptime; i++)
        EP0_BUFFER[INFO_UPTIME_OFFSET + i] = ((__idata u8 *)&uptime)[i];
    EP0_BUFFER[INFO_LINKS_LOST_OFFSET] = LOW(links_lost);
    EP0_BUFFER[INFO_LINKS_LOST_OFFSET + 1] = HIGH(links_lost);
    EP0_BUFFER[INFO_SEQUENCE_OFFSET] = LOW(list_sequence);
    EP0_BUFFER[INFO_SEQUENCE_OFFSET + 1] = HIGH(list_sequence);
    for (i = 0; i < sizeof list_failure; i++)
        EP0_BUFFER[INFO_CAUSE_OFFSET + i] = ((const __xdata u8 *)&list_failure)[i];
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
    {0, 0, 0, 0},
};
