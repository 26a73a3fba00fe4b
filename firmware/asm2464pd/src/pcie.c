#include "pcie.h"

#include "job.h"
#include "phy_table.h"
#include "table.h"
#include "timer.h"
#include "tlp.h"

/* A card answers 20 to 50 ms after its supply is on (hardware: the open firmware's pull request 81). */
#define SETTLE_US 50000ul
enum { LINK_UP_SAMPLES = 3, SAMPLES = 200, SAMPLE_US = 10000 };

/* The link is narrowed, and in the end slowed, if a card answers and it does not come up in 0.4 s each time. */
enum { ATTEMPT_SAMPLES = 40, SLOW = 3 };
static const __code u8 lanes_off[] = {
    PCIE_TUNNEL_LINK_STATUS_LANES_OFF_NONE,
    PCIE_TUNNEL_LINK_STATUS_LANES_OFF_HALF,
    PCIE_TUNNEL_LINK_STATUS_LANES_OFF_ALL_BUT_ONE,
    PCIE_TUNNEL_LINK_STATUS_LANES_OFF_ALL_BUT_ONE,
};

/* Of configuration space: the PCI Express base specification, 7.5. */
enum { BUS_NUMBERS = 0x18, CAPABILITIES = 0x34, PCI_EXPRESS = 0x10 };
enum { LINK_CONTROL = 0x10, RETRAIN_LINK = 0x20, LINK_CONTROL_2 = 0x30, GEN_1 = 1 };
enum { MOST_CAPABILITIES = 48 };

__idata u16 links_lost;

static __bit should_be_up;
static __xdata u8 attempt, busy;

/* With DPX set every MOVX goes to the other plane: the byte is kept in a register. */
static void phy_store(u16 address, u8 value)
{
    CPU_DPX = CPU_DPX_PLANE_PHY_AND_PCIE_SWITCH_REGISTERS;
    *XDATA(address) = value;
    CPU_DPX = CPU_DPX_PLANE_XDATA;
}

void pcie_tune(void)
{
    const __code u8 *steps;
    u8 count, left, lane, end;
    u16 address;

    table = phy_passes;
    while ((count = table_next()) != 0) {
        lane = table_next();
        end = table_next();
        for (steps = table; lane < end; lane++) {
            table = steps;
            for (left = count; left; left--) {
                address = (u16)phy_pages[table_next() | lane] << 8;
                address |= table_next();
                phy_store(address, table_next());
            }
        }
    }
    phy_store(PCIE_ROUTING_ADDRESS, PCIE_ROUTING_ENABLE);
}

/* A configuration request for the register in TLP_ADDRESS_0, of type 1 to bus 1 or of type 0 to bus 0. Returns a
 * cause. */
static u8 configure(u8 format)
{
    TLP_FMT_TYPE = format;
    TLP_ADDRESS_3 = format & 1;
    TLP_ADDRESS_2 = 0;
    TLP_ADDRESS_1 = 0;
    tlp_launch();
    return tlp_wait();
}

/* Have the slot's port, on bus 1, train the link at the lowest rate. The host numbers the buses again. */
static void slow_down(void)
{
    u8 left = MOST_CAPABILITIES;

    TLP_BYTE_ENABLES = 0xF;
    TLP_DATA_3 = 0;
    TLP_DATA_2 = 1;
    TLP_DATA_1 = 1;
    TLP_DATA_0 = 0;
    TLP_ADDRESS_0 = BUS_NUMBERS;
    configure(TLP_FMT_TYPE_KIND_CFGWR0);
    TLP_ADDRESS_0 = CAPABILITIES;
    if (configure(TLP_FMT_TYPE_KIND_CFGRD1))
        return;
    TLP_DATA_1 = TLP_DATA_0;
    do {
        TLP_ADDRESS_0 = TLP_DATA_1 & 0xFC;
        if (!--left || configure(TLP_FMT_TYPE_KIND_CFGRD1))
            return;
    } while (TLP_DATA_0 != PCI_EXPRESS);
    TLP_BYTE_ENABLES = 1;
    TLP_ADDRESS_0 += LINK_CONTROL_2;
    TLP_DATA_0 = GEN_1;
    configure(TLP_FMT_TYPE_KIND_CFGWR1);
    TLP_ADDRESS_0 -= LINK_CONTROL_2 - LINK_CONTROL;
    TLP_DATA_0 = RETRAIN_LINK;
    configure(TLP_FMT_TYPE_KIND_CFGWR1);
}

/* Other lanes take part from the next training on. */
static void retrain(void)
{
    PCIE_PORT_POWER = 0;
    PCIE_TUNNEL_LINK_STATUS = lanes_off[attempt];
    wait_us(SETTLE_US);
    PCIE_PORT_POWER = PCIE_PORT_POWER_ENABLE;
}

u8 pcie_power_on(void)
{
    u8 stable = 0;
    u8 i;

    attempt = busy = 0;
    should_be_up = 0;
    PCIE_TUNNEL_LINK_STATUS = PCIE_TUNNEL_LINK_STATUS_LANES_OFF_NONE;
    PCIE_TUNNEL_CONTROL = 0x01;
    PCIE_PERST = PCIE_PERST_ASSERT;
    PCIE_TUNNEL_LINK_STATE = 0;
    PCIE_SLOT_3V3 |= PCIE_SLOT_3V3_ENABLE;
    wait_us(SETTLE_US);
    /* In this order, without a pause: else training ends in Configuration (hardware, as above). */
    PCIE_PORT_POWER = PCIE_PORT_POWER_ENABLE;
    PCIE_SLOT_12V |= PCIE_SLOT_12V_ENABLE;
    PCIE_TUNNEL_CONFIG = PCIE_TUNNEL_CONFIG_TUNNEL;
    tlp_start();
    PCIE_PERST = 0;
    for (i = 0; i < SAMPLES && stable < LINK_UP_SAMPLES && !GIVEN_UP; i++) {
        wait_us(SAMPLE_US);
        stable++;
        if (PCIE_LTSSM == PCIE_LTSSM_STATE_L0) {
            if (attempt == SLOW && stable == 1)
                slow_down();
            continue;
        }
        stable = 0;
        if (busy || PCIE_LTSSM >= PCIE_LTSSM_STATE_POLLING)
            busy++;
        if (busy == ATTEMPT_SAMPLES && attempt != SLOW) {
            busy = 1;
            attempt++;
            retrain();
        }
    }
    return stable == LINK_UP_SAMPLES;
}

void pcie_power_off(void)
{
    should_be_up = 0;
    PCIE_PERST = PCIE_PERST_ASSERT;
    PCIE_PORT_POWER = 0;
    PCIE_SLOT_12V &= ~PCIE_SLOT_12V_ENABLE;
    PCIE_SLOT_3V3 &= ~PCIE_SLOT_3V3_ENABLE;
}

void pcie_watch(void)
{
    if (PCIE_LINK_STATUS & PCIE_LINK_STATUS_UP) {
        should_be_up = 1;
    } else if (should_be_up) {
        should_be_up = 0;
        HOLD;
        links_lost++;
        RELEASE;
    }
}
