#include "pcie.h"

#include "job.h"
#include "phy_table.h"
#include "table.h"
#include "timer.h"
#include "tlp.h"

/* A card answers 20 to 50 ms after its supply is on (hardware: the open firmware's pull request 81). */
#define SETTLE_US 50000ul
enum { LINK_UP_SAMPLES = 3, SAMPLES = 200, SAMPLE_US = 10000 };

__idata u16 links_lost;

static __bit should_be_up;

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

u8 pcie_power_on(void)
{
    u8 stable = 0;
    u8 i;

    should_be_up = 0;
    PCIE_TUNNEL_LINK_STATUS = 0x0C;
    PCIE_TUNNEL_CONTROL = 0x01;
    PCIE_PERST = PCIE_PERST_ASSERT;
    PCIE_TUNNEL_LINK_STATE = 0;
    PCIE_TUNNEL_LINK_STATUS = 0x0C;
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
        if (PCIE_LTSSM != PCIE_LTSSM_STATE_L0)
            stable = 0;
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
