#include "vendor.h"

#include "bulk.h"
#include "pcie.h"
#include "tlp.h"
#include "usb.h"

enum { SECTOR = 512, TO_HOST = HIGH(REQUEST_SRAM_DMA_VALUE_TO_HOST) };
enum { STREAM_READ = REQUEST_TLP_START_INDEX_MODE_STREAM_READ };

/* With DPX set every MOVX goes to the other bank: the byte travels in a register. */
static u8 load(u16 address, u8 bank)
{
    u8 byte;

    CPU_DPX = bank;
    byte = *XDATA(address);
    CPU_DPX = 0;
    return byte;
}

static void store(u16 address, u8 bank, u8 byte)
{
    CPU_DPX = bank;
    *XDATA(address) = byte;
    CPU_DPX = 0;
}

static u16 value(void)
{
    return setup.value_low | (u16)setup.value_high << 8;
}

static void read_memory(void)
{
    u16 limit = usb_high_speed ? 64 : EP0_BUFFER_SIZE;
    u16 length = setup.length < limit ? setup.length : limit;
    u16 address = value();
    u16 i;

    for (i = 0; i < length; i++)
        EP0_BUFFER[i] = load(address++, setup.index_high);
    control_send(length);
}

static void write_memory(void)
{
    store(value(), setup.index_high, setup.index_low);
    control_accept();
}

static void start_tlp(void)
{
    if (setup.length != TLP_REQUEST_SIZE || (setup.index_low & REQUEST_TLP_START_INDEX_MODE) > STREAM_READ)
        control_stall();
    else
        control_receive(tlp_start);
}

static void finish_tlp(void)
{
    tlp_result();
    control_send(TLP_RESULT_SIZE);
}

/* The write to the start register is the last: it arms the engine. */
static void slot_dma(void)
{
    u8 slots = setup.index_high ? setup.index_high : 1;

    DMA_RELEASE = 0;
    DMA_SECTOR_SIZE_HIGH = HIGH(SECTOR);
    DMA_SECTOR_SIZE_LOW = LOW(SECTOR);
    DMA_SLOT_FIRST = DMA_SLOT_FIRST_VALID | setup.index_low;
    DMA_SLOT_END = setup.index_low + slots;
    DMA_SECTORS_HIGH = setup.value_high & (u8)~TO_HOST;
    DMA_SECTORS_LOW = setup.value_low;
    DMA_CONTROL = setup.value_high & TO_HOST ? DMA_CONTROL_START : DMA_CONTROL_START | DMA_CONTROL_TO_SRAM;
    DMA_ARM = setup.index_low;
    control_accept();
}

/* Answered when it is done: the host waits up to 10 s for that. */
static void power(void)
{
    if (setup.value_low & REQUEST_PCIE_POWER_VALUE_ON)
        pcie_power_on();
    else
        pcie_power_off();
    control_accept();
}

const __code struct request vendor_requests[] = {
    {REQUEST_XDATA_READ_TYPE, REQUEST_XDATA_READ, read_memory},
    {REQUEST_XDATA_WRITE_TYPE, REQUEST_XDATA_WRITE, write_memory},
    {REQUEST_TLP_START_TYPE, REQUEST_TLP_START, start_tlp},
    {REQUEST_TLP_STATUS_TYPE, REQUEST_TLP_STATUS, finish_tlp},
    {REQUEST_SRAM_DMA_TYPE, REQUEST_SRAM_DMA, slot_dma},
    {REQUEST_PCIE_POWER_TYPE, REQUEST_PCIE_POWER, power},
    {0, 0, 0},
};
